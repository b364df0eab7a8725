-- Who took a receiver, and when.
ALTER TABLE receivers
    ADD COLUMN claim_token VARCHAR(36) NULL,
    ADD COLUMN claimed_at  TIMESTAMP   NULL;
