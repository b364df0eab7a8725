//! What each verb means, on every database. Numbers in comments are those of the case list the suite was built from.

mod background;
mod bad_input;
mod bulk;
mod claim;
mod crashes;
mod create;
mod cursor;
mod doctor;
mod faults;
mod finish;
mod heartbeat;
mod held;
mod layering;
mod leases;
mod locks;
mod migrate;
mod operate;
mod recover;
mod scenarios;
mod servers;
mod statements;
mod tables;
mod tables_refused;
mod work;
