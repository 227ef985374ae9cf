SELECT CASE WHEN lower(replace(replace(replace(replace(
        group_concat(sql), char(10), ''), char(13), ''), ' ', ''), '"', ''))
        <> 'createtableleasehold_fence(resourcetextnotnullprimarykey,'
        || 'tokenintegernotnull,tickintegernotnull)withoutrowid'
    THEN group_concat(sql, '; ') END
FROM sqlite_schema WHERE lower(tbl_name) = 'leasehold_fence' GROUP BY lower(tbl_name)
