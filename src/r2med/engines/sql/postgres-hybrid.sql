-- Full-text and vectors, fused by reciprocal rank (60 is the usual constant).
WITH words AS (
    SELECT to_tsquery('english', string_agg(quote_literal(lexeme), ' | ')) AS any_of
    FROM unnest(to_tsvector('english', %(query)s))
),
by_text AS (
    SELECT id, row_number() OVER (ORDER BY ts_rank(words_of_text, any_of, 1) DESC, id COLLATE "C" DESC) AS place
    FROM documents, words
    WHERE words_of_text @@ any_of
    ORDER BY place
    LIMIT 1000
),
by_vector AS (
    SELECT id, row_number() OVER (ORDER BY vector <=> %(vector)s::vector, id COLLATE "C" DESC) AS place
    FROM documents
    ORDER BY place
    LIMIT 1000
)
SELECT id, coalesce(1.0 / (60 + by_text.place), 0) + coalesce(1.0 / (60 + by_vector.place), 0) AS score
FROM by_text FULL JOIN by_vector USING (id)
ORDER BY score DESC, id COLLATE "C" DESC
LIMIT %(k)s
