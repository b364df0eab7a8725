//! The PHP extension and the Python module as people install them: the release profile.
//!
//! `ROWCLAIM_PHP_EXTENSION` names a built extension, `ROWCLAIM_PYTHON` a Python that has the module. Without them both
//! are built here, beside this binary, and the module gets a folder of its own; nothing is installed.

use crate::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What was found, or why not.
pub struct Bindings {
    /// The extension's file.
    pub php: std::result::Result<PathBuf, String>,
    /// The interpreter, and the folder with the module when that is not installed.
    pub python: std::result::Result<(PathBuf, Option<PathBuf>), String>,
}

/// The crate's folder, where the scripts are.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Bindings {
    /// Takes what the environment names and builds the rest.
    pub fn find() -> Bindings {
        let php = match std::env::var_os("ROWCLAIM_PHP_EXTENSION") {
            Some(path) => Ok(path.into()),
            None => build_php().map_err(|error| error.to_string()),
        };
        let python = match std::env::var_os("ROWCLAIM_PYTHON") {
            Some(path) => Ok((path.into(), None)),
            None => build_python().map_err(|error| error.to_string()),
        };
        Bindings { php, python }
    }

    /// For figures that need none.
    pub fn none() -> Bindings {
        let unused = || "not needed".to_owned();
        Bindings { php: Err(unused()), python: Err(unused()) }
    }

    /// A PHP worker: `worker.php MODE DSN BATCH COUNT`.
    pub fn php_worker(&self, mode: &str, dsn: &str, batch: usize, count: usize) -> std::result::Result<Command, String> {
        let extension = self.php.as_ref().map_err(Clone::clone)?;
        let mut command = Command::new("php");
        command.arg("-n").arg("-d").arg(format!("extension={}", extension.display())).arg(folder().join("worker.php"));
        command.args([mode, dsn, &batch.to_string(), &count.to_string()]);
        Ok(command)
    }

    /// A Python worker: `worker.py MODE DSN BATCH COUNT`.
    pub fn python_worker(&self, mode: &str, dsn: &str, batch: usize, count: usize) -> std::result::Result<Command, String> {
        let (python, module) = self.python.as_ref().map_err(Clone::clone)?;
        let mut command = Command::new(python);
        if let Some(module) = module {
            command.env("PYTHONPATH", module);
        }
        command.arg(folder().join("worker.py"));
        command.args([mode, dsn, &batch.to_string(), &count.to_string()]);
        Ok(command)
    }
}

/// The folder that this binary and what cargo builds with it are in.
fn built() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().ok_or("the binary has no folder")?.to_owned())
}

fn build(package: &str, program: &str) -> Result<PathBuf> {
    let is_there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        return Err(format!("there is no {program}").into());
    }
    eprintln!("building {package}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = folder().parent().ok_or("the crate has no workspace")?;
    let target = built()?.parent().ok_or("the binary has no target folder")?.to_owned();
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", package, "--target-dir"])
        .arg(&target)
        .current_dir(workspace)
        .status()?;
    if !status.success() {
        return Err(format!("{package} could not be built; the compiler's message is above").into());
    }
    Ok(target.join("release"))
}

fn build_php() -> Result<PathBuf> {
    Ok(build("rowclaim-php", "php")?.join("librowclaim_php.so"))
}

fn build_python() -> Result<(PathBuf, Option<PathBuf>)> {
    let library = build("rowclaim-py", "python3")?.join("librowclaim_native.so");
    let sources = folder().parent().ok_or("the crate has no workspace")?.join("py-ext/python/rowclaim");
    let path = built()?.join("bench-python");
    let package = path.join("rowclaim");
    std::fs::create_dir_all(&package)?;
    for entry in std::fs::read_dir(sources)? {
        let source = entry?.path();
        if let (true, Some(name)) = (source.extension().is_some_and(|extension| extension == "py"), source.file_name()) {
            std::fs::copy(&source, package.join(name))?;
        }
    }
    std::fs::copy(library, package.join("_native.abi3.so"))?;
    Ok(("python3".into(), Some(path)))
}
