SELECT CASE
        WHEN NOT permanent THEN 'it is not an ordinary table that survives a crash'
        WHEN strange IS NOT NULL THEN NULL
        WHEN coalesce(resource, '') NOT IN ('text', 'character varying') THEN coalesce(
            'its column resource is ' || resource || ', not TEXT', 'it has no column resource TEXT')
        WHEN NOT is_key THEN 'its column resource is not a key'
        WHEN coalesce(token, '') NOT IN ('bigint', 'integer', 'smallint') THEN coalesce(
            'its column token is ' || token || ', not BIGINT', 'it has no column token BIGINT')
    END AS wrong,
    strange,
    NOT coalesce(token = 'bigint' AND resource = 'text' AND exact, false) AS older
FROM (
    SELECT c.relkind = 'r' AND c.relpersistence = 'p' AS permanent,
        format_type(r.atttypid, NULL) AS resource, format_type(t.atttypid, NULL) AS token,
        coalesce(r.atttypmod = -1 AND r.attnotnull AND t.attnotnull AND l.collname = 'C', false)
            AS exact,
        EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique
            AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1
            AND i.indkey[0] = r.attnum) AS is_key,
        coalesce(
            (SELECT 'has the trigger ' || g.tgname FROM pg_trigger g
                WHERE g.tgrelid = c.oid AND NOT g.tgisinternal LIMIT 1),
            (SELECT 'has the rule ' || w.rulename FROM pg_rewrite w WHERE w.ev_class = c.oid LIMIT 1),
            CASE WHEN c.relrowsecurity OR c.relforcerowsecurity THEN 'has row security' END,
            (SELECT 'inherits, or is inherited from' FROM pg_inherits h
                WHERE c.oid IN (h.inhrelid, h.inhparent) LIMIT 1),
            (SELECT 'has a default or an expression for the column ' || a.attname FROM pg_attrdef d
                JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
                WHERE d.adrelid = c.oid LIMIT 1),
            (SELECT 'has the constraint ' || n.conname FROM pg_constraint n
                WHERE n.conrelid = c.oid AND n.contype NOT IN ('p', 'u', 'n') LIMIT 1),
            (SELECT 'has expressions in the index ' || i.indexrelid::regclass FROM pg_index i
                WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL) LIMIT 1),
            (SELECT 'has a type of somebody''s own in the column ' || a.attname FROM pg_attribute a
                JOIN pg_type y ON y.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0
                AND NOT a.attisdropped AND y.typnamespace <> 'pg_catalog'::regnamespace LIMIT 1),
            (SELECT 'belongs to ' || o.rolname || ', who is neither this user, nor one whose role this'
                || ' user has, nor the owner of the schema or the database, nor a superuser'
                FROM pg_roles o, pg_roles me, pg_namespace s, pg_database b
                WHERE o.oid = c.relowner AND me.rolname = current_user AND s.oid = c.relnamespace
                AND b.datname = current_database() AND NOT o.rolsuper
                AND o.oid NOT IN (me.oid, s.nspowner, b.datdba)
                AND (me.rolsuper OR NOT pg_has_role(me.oid, o.oid, 'MEMBER')))
        ) AS strange
    FROM pg_class c
    LEFT JOIN pg_attribute r ON r.attrelid = c.oid AND r.attname = 'resource'
    LEFT JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'token'
    LEFT JOIN pg_collation l ON l.oid = r.attcollation
    WHERE c.oid = to_regclass('leasehold_fence')
) AS found
