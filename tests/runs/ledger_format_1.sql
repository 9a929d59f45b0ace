-- A ledger of format 1: bm25 on two states of one folder and a fusion on the first, as r2med 0.1.0 wrote it.
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE generations (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL
);
CREATE TABLE rankings (
    run TEXT PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    data BLOB NOT NULL
);
INSERT INTO "rankings" VALUES('8595e47b5b',X'72326D65642072756E20310A789CB3636060A8562A4ECE2F4A2D56B252B249B350D2512A2C4D2DCA04F1A3950A0D417C23A5581DA594FCE4D2DCD4BC12B0780A483C05285ECBC8C400018C0C7090676A9A72F4E8833B772C8E1CC96C6C6C3531B97CE992BDBD3D0047F61F7C');
INSERT INTO "rankings" VALUES('a1f934374c',X'72326D65642072756E20310A789CB3636060A8562A4ECE2F4A2D56B252B249B350D2512A2C4D2DCA04F1A3950A0D417C23A5581DA594FCE4D2DCD4BC12B0780A483C05285ECBC8C400018C0C70606DDD72EB96C09E3D4EFEFE1C85858A274FB62C58B0C0DEDE1E002DBC1DA6');
INSERT INTO "rankings" VALUES('cd17c4c6f2',X'72326D65642072756E20310A789CB3636060A8562A4ECE2F4A2D56B252B249B350D2512A2C4D2DCA04F1A3950A0D417C23A5581DA594FCE4D2DCD4BC12B0788A11503CC55029B69681890102182194A9E9D1A377EE1C39D2D8686272E992BD3D0010CC1B91');
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    system TEXT NOT NULL,
    task TEXT NOT NULL,
    task_group TEXT NOT NULL,
    created TEXT NOT NULL,
    seconds REAL NOT NULL,
    queries TEXT NOT NULL,
    record TEXT NOT NULL
);
INSERT INTO "runs" VALUES('8595e47b5b','8595e47b5b1c2516d382f0cb5e1949a8','bm25','notes','custom','2026-11-16T04:58:43+00:00',1.1411556999973981874e-02,'["q1","q2"]','{"r2med":"0.1.0","python":"3.11.7","packages":{"numpy":"2.4.6","polars":"2.1.0","wordllama":"0.4.0.post1","torch":"2.13.0+cpu","transformers":"5.22.2","sentence-transformers":"6.2.0","tokenizers":"0.23.3","onnxruntime":"1.31.1","openai":"3.49.0","peft":"0.21.2"},"machine":{"platform":"linux","architecture":"x86_64","cores":2},"data":{"fingerprint":"61304e3ec8eb9bf0ce1adacd3621ff20","documents":"93c8d6fa61b1b55d0b2c0d3a47875fcc","queries":"66081d55bc7f58b7419daa9fe2a771e9","gold":"84ae2749621986eeaad6221d2981dae3","revision":""},"documents":3,"stages":[{"spec":"bm25","kind":"retriever","analyzer":"lucene-english","query weighting":"query-side BM25","k1":0.9,"b":0.4,"depth":100,"drop_self":false,"join":"as published","analyzer_version":"1"}],"oracle":false,"warnings":[],"incomplete":{},"notes":{"bm25":{"analyzer":"lucene-english 1","query_weighting":"query-side BM25","vocabulary":9,"average_length":3.0}}}');
INSERT INTO "runs" VALUES('a1f934374c','a1f934374ce6fa1f4d5c9461d96d7875','rrf(bm25, bm25-classic)','notes','custom','2026-11-16T04:58:43+00:00',1.29276819999972758523e-02,'["q1","q2"]','{"r2med":"0.1.0","python":"3.11.7","packages":{"numpy":"2.4.6","polars":"2.1.0","wordllama":"0.4.0.post1","torch":"2.13.0+cpu","transformers":"5.22.2","sentence-transformers":"6.2.0","tokenizers":"0.23.3","onnxruntime":"1.31.1","openai":"3.49.0","peft":"0.21.2"},"machine":{"platform":"linux","architecture":"x86_64","cores":2},"data":{"fingerprint":"61304e3ec8eb9bf0ce1adacd3621ff20","documents":"93c8d6fa61b1b55d0b2c0d3a47875fcc","queries":"66081d55bc7f58b7419daa9fe2a771e9","gold":"84ae2749621986eeaad6221d2981dae3","revision":""},"documents":3,"stages":[{"spec":"rrf(bm25, bm25-classic)","kind":"retriever","depth":100,"lists":{"bm25":100,"bm25-classic":100},"weights":[1.0,1.0]},{"spec":"bm25","kind":"retriever","analyzer":"lucene-english","query weighting":"query-side BM25","k1":0.9,"b":0.4,"depth":100,"drop_self":false,"join":"as published","analyzer_version":"1"},{"spec":"bm25-classic","kind":"retriever","analyzer":"lucene-english","query weighting":"term frequency","k1":0.9,"b":0.4,"depth":100,"drop_self":false,"join":"as published","analyzer_version":"1"}],"oracle":false,"warnings":[],"incomplete":{},"notes":{"rrf(bm25, bm25-classic)":{"bm25":{"analyzer":"lucene-english 1","query_weighting":"query-side BM25","vocabulary":9,"average_length":3.0},"bm25-classic":{"analyzer":"lucene-english 1","query_weighting":"term frequency","vocabulary":9,"average_length":3.0}}}}');
INSERT INTO "runs" VALUES('cd17c4c6f2','cd17c4c6f2e77a5ae2ebaa683950a6bf','bm25','notes','custom','2026-11-16T04:58:43+00:00',1.10749469999973371159e-02,'["q1","q2"]','{"r2med":"0.1.0","python":"3.11.7","packages":{"numpy":"2.4.6","polars":"2.1.0","wordllama":"0.4.0.post1","torch":"2.13.0+cpu","transformers":"5.22.2","sentence-transformers":"6.2.0","tokenizers":"0.23.3","onnxruntime":"1.31.1","openai":"3.49.0","peft":"0.21.2"},"machine":{"platform":"linux","architecture":"x86_64","cores":2},"data":{"fingerprint":"f96f1c7352d2b63cf301b2b06b8ff246","documents":"d16da8e0c1af25a2a032cc0477fb25bc","queries":"66081d55bc7f58b7419daa9fe2a771e9","gold":"84ae2749621986eeaad6221d2981dae3","revision":""},"documents":3,"stages":[{"spec":"bm25","kind":"retriever","analyzer":"lucene-english","query weighting":"query-side BM25","k1":0.9,"b":0.4,"depth":100,"drop_self":false,"join":"as published","analyzer_version":"1"}],"oracle":false,"warnings":["1 of 2 queries share no term with any document and find nothing"],"incomplete":{},"notes":{"bm25":{"analyzer":"lucene-english 1","query_weighting":"query-side BM25","vocabulary":9,"average_length":3.0}}}');
CREATE TABLE scores (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    measure TEXT NOT NULL,
    mean REAL NOT NULL,
    per_query BLOB NOT NULL,
    PRIMARY KEY (run, measure)
) WITHOUT ROWID;
INSERT INTO "scores" VALUES('8595e47b5b','Hit@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('8595e47b5b','MAP@100',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('8595e47b5b','MRR@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('8595e47b5b','P@10',0.1,X'9A9999999999B93F9A9999999999B93F');
INSERT INTO "scores" VALUES('8595e47b5b','Recall@100',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('8595e47b5b','nDCG@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('a1f934374c','Hit@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('a1f934374c','MAP@100',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('a1f934374c','MRR@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('a1f934374c','P@10',0.1,X'9A9999999999B93F9A9999999999B93F');
INSERT INTO "scores" VALUES('a1f934374c','Recall@100',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('a1f934374c','nDCG@10',1.0,X'000000000000F03F000000000000F03F');
INSERT INTO "scores" VALUES('cd17c4c6f2','Hit@10',0.5,X'0000000000000000000000000000F03F');
INSERT INTO "scores" VALUES('cd17c4c6f2','MAP@100',0.5,X'0000000000000000000000000000F03F');
INSERT INTO "scores" VALUES('cd17c4c6f2','MRR@10',0.5,X'0000000000000000000000000000F03F');
INSERT INTO "scores" VALUES('cd17c4c6f2','P@10',0.05,X'00000000000000009A9999999999B93F');
INSERT INTO "scores" VALUES('cd17c4c6f2','Recall@100',0.5,X'0000000000000000000000000000F03F');
INSERT INTO "scores" VALUES('cd17c4c6f2','nDCG@10',0.5,X'0000000000000000000000000000F03F');
CREATE INDEX runs_by_system ON runs (system, task);
COMMIT;
