-- Search by cosine over pgvector; encoder=... makes the query's vector.
-- Exact as it stands. With an index it is approximate: put hnsw.ef_search into the address,
-- postgresql://.../name?options=-c%%20hnsw.ef_search%%3D200, and order by the distance alone.
SELECT id, 1 - (vector <=> %(vector)s::vector) AS score
FROM documents
ORDER BY score DESC, id COLLATE "C" DESC
LIMIT %(k)s
