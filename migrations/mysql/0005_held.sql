-- At-most-once sources: which claims hold what they had begun, what was begun, and jobs that wait for a person.
ALTER TABLE {jobs}
  MODIFY state ENUM('ready','claimed','done','dead','cancelled','held') NOT NULL DEFAULT 'ready';

ALTER TABLE {claims}
  ADD COLUMN on_lost ENUM('retry','hold') NOT NULL DEFAULT 'retry' COMMENT 'what becomes of rows that were begun when the lease runs out';

ALTER TABLE {attempts}
  MODIFY outcome ENUM('failed','lost','released','completed','started') NOT NULL,
  MODIFY final TINYINT NOT NULL DEFAULT 0 COMMENT '1: the job was dead after it; 2: held';
