CREATE INDEX IF NOT EXISTS usher_radacct_open ON radacct (nasipaddress) WHERE acctstoptime IS NULL;
-- A session is put in place of the one of its key, so the key must be one; older tables do not say so.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = 'radacct'::regclass AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL
            AND a.attname = 'acctuniqueid'
    ) THEN
        CREATE UNIQUE INDEX usher_radacct_unique ON radacct (acctuniqueid);
    END IF;
END
$$;
