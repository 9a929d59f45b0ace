"""Why a system fails: causes, the reasoning gap, what systems have in common, what judgements miss, what it costs."""
