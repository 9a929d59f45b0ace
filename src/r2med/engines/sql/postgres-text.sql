-- Full-text search over the table that `r2med engines push TASK --to postgres` fills.
-- Any word of the query may match, as in BM25; 1 divides by the logarithm of the length.
WITH words AS (
    SELECT to_tsquery('english', string_agg(quote_literal(lexeme), ' | ')) AS any_of
    FROM unnest(to_tsvector('english', %(query)s))
)
SELECT id, ts_rank(words_of_text, any_of, 1) AS score
FROM documents, words
WHERE words_of_text @@ any_of
ORDER BY score DESC, id COLLATE "C" DESC
LIMIT %(k)s
