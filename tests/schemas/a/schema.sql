-- Bulk sending: a task and its targets. DATETIME columns hold the time of Shanghai, +08:00, to the second.
CREATE TABLE xxx_task (
    id             INT          NOT NULL AUTO_INCREMENT,
    name           VARCHAR(64)  NOT NULL,
    status         TINYINT      NOT NULL DEFAULT 0 COMMENT '0 pending, 1 running, 2 done',
    lock_at        DATETIME     NULL COMMENT 'when a cron run took the task',
    finished_count INT          NOT NULL DEFAULT 0 COMMENT 'how often somebody finished it; 1 is right',
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE xxx_task_target (
    id         INT         NOT NULL AUTO_INCREMENT,
    task_id    INT         NOT NULL,
    openid     VARCHAR(64) NOT NULL,
    status     TINYINT     NOT NULL DEFAULT 0 COMMENT '0 pending, 1 processing, 2 sent, 3 failed',
    cron_token VARCHAR(40) NULL,
    send_at    DATETIME    NULL,
    PRIMARY KEY (id),
    KEY task_token (task_id, cron_token)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
