dnl Rowclaim: a PHP extension written in Rust. Cargo does the building, see Makefile.frag.
dnl
dnl Works in two trees: the repository (the crates are beside this folder) and the package for PECL (they are in rust/).

PHP_ARG_ENABLE([rowclaim],
  [whether to enable rowclaim],
  [AS_HELP_STRING([--enable-rowclaim], [Enable rowclaim])],
  [yes])

PHP_ARG_WITH([cargo],
  [for cargo],
  [AS_HELP_STRING([--with-cargo=PATH], [cargo to build rowclaim with])],
  [no], [no])

if test "$PHP_ROWCLAIM" != "no"; then
  ROWCLAIM_TOP=`cd "$abs_srcdir" && pwd`
  ROWCLAIM_BUILD=`pwd`
  if test -f "$ROWCLAIM_TOP/rust/Cargo.toml"; then
    ROWCLAIM_WORKSPACE="$ROWCLAIM_TOP/rust"
    ROWCLAIM_TARGET="$ROWCLAIM_BUILD/target"
  elif test -f "$ROWCLAIM_TOP/../Cargo.toml"; then
    ROWCLAIM_WORKSPACE=`cd "$ROWCLAIM_TOP/.." && pwd`
    ROWCLAIM_TARGET="$ROWCLAIM_WORKSPACE/target"
  else
    AC_MSG_ERROR([the crates of rowclaim are neither in $ROWCLAIM_TOP/rust nor beside $ROWCLAIM_TOP])
  fi
  if test -n "$CARGO_TARGET_DIR"; then ROWCLAIM_TARGET="$CARGO_TARGET_DIR"; fi

  if test "$PHP_CARGO" != "no" && test "$PHP_CARGO" != "yes"; then
    CARGO="$PHP_CARGO"
  else
    AC_PATH_PROG([CARGO], [cargo], [], [$PATH:$HOME/.cargo/bin:/usr/local/cargo/bin])
  fi
  if test -z "$CARGO"; then
    AC_MSG_ERROR([cargo not found: install Rust 1.88 or newer (https://rustup.rs), or give --with-cargo=PATH])
  fi
  AC_MSG_CHECKING([whether cargo runs])
  ROWCLAIM_CARGO_VERSION=`"$CARGO" --version 2>/dev/null`
  if test -z "$ROWCLAIM_CARGO_VERSION"; then AC_MSG_ERROR([$CARGO does not run]); fi
  AC_MSG_RESULT([$ROWCLAIM_CARGO_VERSION])

  AC_MSG_CHECKING([for libclang, which reads the headers of PHP])
  ROWCLAIM_CLANG=no
  for d in "$LIBCLANG_PATH" /usr/lib/llvm-*/lib /usr/lib /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/local/lib /opt/homebrew/opt/llvm/lib; do
    for f in "$d"/libclang.so* "$d"/libclang-*.so* "$d"/libclang.dylib; do
      if test -e "$f"; then ROWCLAIM_CLANG="$f"; break 2; fi
    done
  done
  AC_MSG_RESULT([$ROWCLAIM_CLANG])
  if test "$ROWCLAIM_CLANG" = no; then
    AC_MSG_ERROR([libclang not found: apt-get install libclang-dev, or set LIBCLANG_PATH])
  fi

  ROWCLAIM_PHP="$PHP_EXECUTABLE"
  if test -z "$ROWCLAIM_PHP" || test "$ROWCLAIM_PHP" = NONE; then ROWCLAIM_PHP=`$PHP_CONFIG --php-binary`; fi
  case "$PHP_CONFIG" in
    /*) ROWCLAIM_PHP_CONFIG="$PHP_CONFIG" ;;
    *) ROWCLAIM_PHP_CONFIG=`command -v "$PHP_CONFIG"` ;;
  esac
  PHP_SUBST([CARGO])
  PHP_SUBST([ROWCLAIM_WORKSPACE])
  PHP_SUBST([ROWCLAIM_TARGET])
  PHP_SUBST([ROWCLAIM_PHP])
  PHP_SUBST([ROWCLAIM_PHP_CONFIG])
  PHP_MODULES="$PHP_MODULES \$(phplibdir)/rowclaim.so"
  PHP_SUBST([PHP_MODULES])
  PHP_ADD_BUILD_DIR([.])
  PHP_ADD_MAKEFILE_FRAGMENT([$abs_srcdir/Makefile.frag], [$abs_srcdir], [$abs_builddir])
fi
