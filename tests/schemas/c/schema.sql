-- Jobs that poll other people's systems, in ThinkPHP's manner: words for the status, seconds since 1970 for the times.
CREATE TABLE polling_jobs (
    id           INT UNSIGNED     NOT NULL AUTO_INCREMENT,
    business_key VARCHAR(128)     NOT NULL,
    type         VARCHAR(32)      NOT NULL,
    payload      JSON             NOT NULL,
    status       VARCHAR(16)      NOT NULL DEFAULT 'pending' COMMENT 'pending, running, succeeded, failed',
    attempts     TINYINT UNSIGNED NOT NULL DEFAULT 0,
    max_attempts TINYINT UNSIGNED NOT NULL DEFAULT 10,
    next_run_at  INT UNSIGNED     NOT NULL DEFAULT 0,
    locked_by    VARCHAR(64)      NULL,
    locked_until INT UNSIGNED     NULL,
    last_error   VARCHAR(255)     NULL,
    finished_at  INT UNSIGNED     NULL,
    PRIMARY KEY (id),
    UNIQUE KEY business_key (business_key),
    KEY due (type, status, next_run_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
