CREATE TABLE leasehold_fence
(resource TEXT COLLATE "C" PRIMARY KEY, token BIGINT NOT NULL)
