SELECT m.type = 'table' AS is_table,
    (SELECT upper(type) FROM pragma_table_info(m.name) WHERE name = 'resource') AS resource,
    (SELECT upper(type) FROM pragma_table_info(m.name) WHERE name = 'token') AS token,
    EXISTS (SELECT 1 FROM pragma_index_list(m.name) AS l
        WHERE l."unique" AND NOT l.partial
        AND (SELECT group_concat(x.name || ' ' || x.coll) FROM pragma_index_xinfo(l.name) AS x
            WHERE x."key") = 'resource BINARY') AS is_key
FROM sqlite_schema AS m WHERE m.name = 'leasehold_fence'
