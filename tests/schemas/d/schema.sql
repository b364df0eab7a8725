-- Inspections that come again and again. `locked` is the gate, `status` only says whether the job is switched on.
-- DATETIME columns hold the time of Shanghai, +08:00.
CREATE TABLE inspection_job (
    id                     INT         NOT NULL AUTO_INCREMENT,
    name                   VARCHAR(64) NOT NULL,
    status                 VARCHAR(16) NOT NULL DEFAULT 'RUNNING' COMMENT 'RUNNING or PAUSED',
    next_run_time          DATETIME(3) NOT NULL,
    interval_seconds       INT         NOT NULL,
    locked                 TINYINT     NOT NULL DEFAULT 0,
    lock_node              VARCHAR(64) NULL,
    lock_time              DATETIME(6) NULL,
    claim_token            VARCHAR(64) NULL COMMENT 'there, and never used by the hand-written job',
    retry_count            INT         NOT NULL DEFAULT 0,
    retry_interval_seconds INT         NOT NULL DEFAULT 60,
    last_slot              DATETIME(3) NULL COMMENT 'the planned time of the last run that is over',
    PRIMARY KEY (id),
    KEY due (status, locked, next_run_time)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
