-- A task is claimed as a target is, so its table needs a place for the token. The targets have one: cron_token.
ALTER TABLE xxx_task ADD COLUMN claim_token VARCHAR(36) NULL;
