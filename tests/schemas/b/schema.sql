-- Receivers of messages, as a Laravel migration makes them.
CREATE TABLE receivers (
    id           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    message_id   BIGINT          NOT NULL,
    phone        VARCHAR(32)     NOT NULL,
    status       TINYINT         NOT NULL DEFAULT 0 COMMENT '0 new, 1 processing, 2 processed',
    processed_at TIMESTAMP       NULL,
    created_at   TIMESTAMP       NULL,
    updated_at   TIMESTAMP       NULL,
    PRIMARY KEY (id),
    KEY receivers_status_index (status)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
