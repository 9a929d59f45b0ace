"""The verbs that `import r2med` offers, with strings wherever a person would type a string.

dataset = r2med.load("sample/MedQA-Diag")
r2med.search("bm25", dataset, "fatigue, golden-brown corneal rings")
r2med.evaluate(["bm25", "bm25-classic"], "sample")
r2med.compare("bm25", "bm25-classic")
"""
