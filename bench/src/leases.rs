//! A lease taken and given back, beside the same two statements sent by hand; then many processes' worth of threads on few names.

use crate::report::{Pairs, Report, Target};
use crate::server::{Server, options, runtime};
use crate::{Effort, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Params, Value};
use rowclaim::LeaseRequest;
use rowclaim::blocking::{Engine, Leased};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const OURS: &str = "bench_ours_";
const LEASE: Duration = Duration::from_secs(60);

/// Leases a second by hand: the texts are those of the core's `dialect/mysql.rs`.
async fn by_hand(connection: &mut Conn, count: usize) -> Result<f64> {
    let take = format!(
        "UPDATE {OURS}leases SET owner = ?, holder = ?, fence = LAST_INSERT_ID(fence + 1), acquired_at = UTC_TIMESTAMP(6), \
         lease_for = ?, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE name = ? AND lease_until <= UTC_TIMESTAMP(6)"
    );
    let release = format!(
        "UPDATE {OURS}leases SET owner = NULL, lease_until = UTC_TIMESTAMP(6) WHERE name = ? AND owner = ? AND fence = ?"
    );
    let micros = i64::try_from(LEASE.as_micros())?;
    let since = Instant::now();
    for number in 0..count {
        let owner = Value::Bytes((number as u128).to_be_bytes().to_vec());
        let values: Vec<Value> = vec![owner.clone(), "hand".into(), micros.into(), micros.into(), "hand".into()];
        let taken = connection.exec_iter(&take, Params::Positional(values)).await?;
        let (matched, fence) = (taken.affected_rows(), taken.last_insert_id());
        taken.drop_result().await?;
        let values: Vec<Value> = vec!["hand".into(), owner, fence.into()];
        let released = connection.exec_iter(&release, Params::Positional(values)).await?;
        if matched != 1 || released.affected_rows() != 1 {
            return Err("the lease by hand was not ours".into());
        }
        released.drop_result().await?;
    }
    Ok(count as f64 / since.elapsed().as_secs_f64())
}

fn taken(engine: &Engine, name: &str) -> Result<bool> {
    match engine.lease(&LeaseRequest::new(name, LEASE))? {
        Leased::Acquired(lease) if lease.release()? => Ok(true),
        Leased::Acquired(_) => Err("a lease was lost".into()),
        Leased::Busy(_) => Ok(false),
    }
}

fn ours(engine: &Engine, count: usize) -> Result<f64> {
    let since = Instant::now();
    for _ in 0..count {
        if !taken(engine, "ours")? {
            return Err("the lease is busy".into());
        }
    }
    Ok(count as f64 / since.elapsed().as_secs_f64())
}

/// `lease_ratio`, and `lease_errors_32_on_10`.
pub fn measure(server: &mut Server, report: &mut Report, effort: Effort) -> Result<()> {
    server.make_tables(OURS)?;
    let dsn = server.dsn(OURS, "&worker=bench");
    let engine = Engine::connect(&dsn)?;
    for name in ["ours", "hand"] {
        taken(&engine, name)?;
    }
    let runtime = runtime()?;
    let setup = vec!["SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned()];
    let opts = OptsBuilder::from_opts(options(&dsn)?).setup(setup);
    let mut connection = runtime.block_on(Conn::new(opts))?;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let count = effort.jobs / 8;
    for round in 0..=effort.rounds {
        let pair = (ours(&engine, count)?, runtime.block_on(by_hand(&mut connection, count))?);
        // The first one only warms up.
        if round > 0 {
            left.push(pair.0);
            right.push(pair.1);
        }
    }
    let pairs = Pairs { ours: &left, counterpart: &right, counterpart_is: "by hand", unit: "leases/s" };
    report.ratio("lease_ratio", &pairs, Target::AtLeast(0.8));
    let (errors, holdings) = (AtomicU64::new(0), AtomicU64::new(0));
    let engines = (0..32)
        .map(|n| Engine::connect(&server.dsn(OURS, &format!("&worker=bench{n}"))))
        .collect::<rowclaim::Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        for (number, engine) in engines.iter().enumerate() {
            let (errors, holdings) = (&errors, &holdings);
            scope.spawn(move || {
                for turn in 0..200 {
                    match taken(engine, &format!("name{}", (number + turn) % 10)) {
                        Ok(is_taken) => drop(holdings.fetch_add(u64::from(is_taken), Relaxed)),
                        Err(error) => {
                            eprintln!("{error}");
                            errors.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
    });
    report.value("lease_errors_32_on_10", errors.load(Relaxed) as f64, "errors of 32 engines on 10 names, 6,400 tries");
    report.aside("lease_holdings_32_on_10", holdings.load(Relaxed) as f64);
    for engine in engines {
        engine.close(Duration::from_secs(5))?;
    }
    engine.close(Duration::from_secs(5))?;
    runtime.block_on(connection.disconnect())?;
    server.drop_tables(OURS)
}
