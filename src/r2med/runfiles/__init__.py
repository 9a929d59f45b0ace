"""Run files: ranked lists read from and written to the formats that retrieval people exchange.

trec     query Q0 document rank score tag, separated by white space
jsonl    a query a line; written as the benchmark's authors do, {"id": query, "topk_pid": [[document, score], ...]}
json     one object, {query: {document: score}}, as pytrec_eval and BEIR dump it
parquet  columns query, document, score; the precision of the scores is kept

All may be gzipped; `r2med.runfiles.objects` lists the further shapes that are read. Text holds each score as a double
that reads back exactly. The scores decide the order, never the ranks or the order of rows. A query for which nothing
was found survives in jsonl and json only: the other two are made of rows.
"""

from r2med.runfiles.files import FORMATS, Format, read_run, write_run
from r2med.runfiles.packed import pack, unpack

__all__ = ["FORMATS", "Format", "pack", "read_run", "unpack", "write_run"]
