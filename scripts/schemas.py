"""The JSON Schemas of what `--json` prints, from the types of the results; `make reference` writes docs/schemas.

A shape is the type that a verb prints: what stands with its fields describes them. Shapes written by hand are being
replaced by types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from type_schemas import shape, type_schema

from r2med.answers.effects import Counts, Grounding, InView, NuggetRecall, Paired, Quadrants, WayToGold
from r2med.answers.nugget_writer import WrittenNuggets
from r2med.audit.corrected_scores import CorrectedScores, CorrectedSystem, PlannedWidth
from r2med.audit.study import Audit, Conclusion, LabelChange, SetPair, SystemChange
from r2med.comparison.study import PowerPlan
from r2med.construction.health import Baseline, HealthRule, PoolBias, PoolCoverage, TaskHealth
from r2med.construction.package import Publication
from r2med.construction.people import PeopleProgress
from r2med.data.tasks import Task
from r2med.data.validate import Stats, ValidationReport
from r2med.diagnosis.complement import Complement
from r2med.diagnosis.coverage import Coverage
from r2med.diagnosis.gap import Climb
from r2med.diagnosis.verification import VerifiedQuery, VerifiedSystem
from r2med.exchange.verify import Verified
from r2med.leaderboard.factors import Factors
from r2med.leakage.findings import Share
from r2med.llm.budget import Estimate
from r2med.measure.population import PopulationEstimate
from r2med.measure.significance import Difference
from r2med.nano.profile import TaskProfile
from r2med.pipeline.plan import Plan
from r2med.pipeline.search import Hit
from r2med.render.scores.model import Ranks
from r2med.reviews.imports import ImportedLabels
from r2med.reviews.labels import LabelExport
from r2med.reviews.model import ModelJudging
from r2med.reviews.progress import ReviewProgress
from r2med.runs.contamination import Contamination
from r2med.runs.cost import Cost
from r2med.tuning.frontier import Bill
from r2med.tuning.routes import CurvePoint
from r2med.tuning.study import Fold
from r2med.workbench.cases import Case

Schema = dict[str, Any]


def value(kind: str, text: str = "", **more: Any) -> Schema:
    """A value of a kind, and what it means."""
    return {"type": kind, **({"description": text} if text else {}), **more}


def string(text: str = "") -> Schema:
    """A text."""
    return value("string", text)


def number(text: str = "") -> Schema:
    """Any number."""
    return value("number", text)


def count(text: str = "") -> Schema:
    """A number of things."""
    return value("integer", text, minimum=0)


def share(text: str = "") -> Schema:
    """A share of 1."""
    return value("number", text, minimum=0, maximum=1)


def flag(text: str = "") -> Schema:
    """True or false."""
    return value("boolean", text)


def unknown(schema: Schema) -> Schema:
    """A value that may be null, which means that it is not known or does not apply."""
    return schema | {"type": [schema["type"], "null"]}


def record(required: Mapping[str, Schema], /, text: str = "", **optional: Schema) -> Schema:
    """An object with fields that are always there, and some that may be."""
    return value("object", text, required=list(required), properties={**required, **optional})


def table(values: Schema, text: str = "") -> Schema:
    """An object whose keys are names."""
    return value("object", text, additionalProperties=values)


def anything(text: str) -> Schema:
    """An object whose fields depend on what was run."""
    return value("object", text, additionalProperties=True)


def array(items: Schema, text: str = "", **more: Any) -> Schema:
    """A list."""
    return value("array", text, **more, items=items)


SPEC = string("The system's spec.")
TASK = string("The task's name, or the path of a folder.")
WHERE = {"system": SPEC, "task": TASK}
GROUP = string("full, nano, sample, or one of the groups of data of one's own.")
NOTES = array(string(), "What a reader must know, a sentence each.")
METRICS = table(share(), "Measure, such as nDCG@10, to its mean over the queries with judgements.")
ENDS = array(number(), "Low and high end of the 95% interval.", minItems=2, maxItems=2)
MEAN = record({"mean": number(), "low": number(), "high": number()}, "A mean with its 95% interval.")
COST = shape(Cost, "seconds_per_query")
SPENDING = {"requests": count(), "tokens": count(), "dollars": unknown(number("US dollars; null if unknown."))}

RESULT = record(
    {
        **WHERE,
        "queries": count("Queries with judgements."),
        "documents": count(),
        "metrics": METRICS,
        "seconds": number("Of the whole run on the clock."),
        "warnings": array(string()),
        "group": GROUP,
    },
    "One system on one task.",
    run=string("The run's id in the ledger; absent for a run file."),
    cached=flag("Whether it was taken from the ledger."),
    cost=COST,
    foreseen=record(SPENDING, "What a dry run said of servers' bills; absent where some was answered already."),
    used=record(SPENDING, "What they came to."),
    oracle=flag("Whether a stage read the gold answers: a ceiling, not a system."),
    recall_lost=number("The share of the exact lists that an approximate search did not find; absent if exact."),
    latency=record(
        {"p50": number(), "p95": number(), "p99": number()},
        "Seconds that an engine of one's own took to answer a query; absent where queries were not asked one by one.",
    ),
    errors=count("Requests to engines, or calls, that ended in an error, also where another one made up for it."),
    timeouts=count("Requests or calls that took too long; `errors` does not count them."),
    incomplete=table(string(), "Query to the reason why a stage could not serve it."),
)
FAILURE = record({**WHERE, "error": string()}, "A system that could not be measured on a task.")
RUN = record(
    {
        "results": array(RESULT),
        "averages": table(METRICS, "System to its means over tasks; empty where tasks of several groups were run."),
        "groups": table(table(METRICS, "System to its means over the group's tasks."), "Group to its averages."),
        "intervals": table(
            table(table(ENDS, "Task, or average, to the interval."), "System to its intervals."),
            "Group to the intervals of the first measure.",
        ),
    },
    failures=array(FAILURE),
)

PLAN = array(shape(Plan))


def difference(text: str, **more: Schema) -> Schema:
    """A paired difference of two systems."""
    return shape(Difference, **more) | {"description": text}


COMPARE = array(
    record(
        {
            "a": SPEC,
            "b": SPEC,
            "group": GROUP,
            "oracles": array(string(), "Which of the two were shown gold answers: ceilings, not systems."),
            "verdict": string("The conclusion in a sentence."),
            "overall": difference("Over all queries.", holm=unknown(share("p-value, corrected for several pairs."))),
            "families": table(difference("One family of tasks.")),
            "tasks": table(difference("One task.", holm=share("p-value, corrected for several tasks."))),
            "incomplete": table(count(), "a or b to its queries that a stage could not serve."),
            "notes": NOTES,
        },
        "Two systems.",
    )
)

LINE = record(
    {
        "rank": unknown(count("null for an oracle, and for a system that lacks a task.")),
        "name": string(),
        "system": unknown(string("The spec that runs it here; null where there is none.")),
        "sources": array(string()),
        "own": flag("Whether it is a run of the ledger."),
        "kind": string(),
        "retrievers": array(string(), "What searches; of a reranker its first stage."),
        "llms": array(string()),
        "rerankers": array(string()),
        "average": unknown(number()),
        "values": table(unknown(number()), "Task to score."),
    },
    "A row.",
    title=string("What those who submitted it call it."),
    published_average=number("The average as its authors printed it."),
    oracle=flag("Whether a stage read the gold answers."),
    incomplete=count("Queries that a stage could not serve."),
    recall_lost=number("The share of the exact lists that approximate search did not find; absent if exact."),
    contamination=shape(Contamination) | {"description": "With --columns contamination: what its models saw before."},
    ranks=shape(Ranks) | {"description": "With --columns ranks: the ranks that its figures leave possible."},
    disputed=flag("Whether sources disagree about it."),
    apart=share("By how much the averages differ that sources give it."),
    first_stage=string("What it reranks."),
    runs=table(string(), "Task to the run's id in the ledger."),
    intervals=table(ENDS, "Task, or average, to the interval; local runs only."),
    significance=table(string(), "Task, or average, to the mark of significance against --baseline."),
    cost=COST,
    max_query=count("How many tokens of a query the retriever of a published system read, where that is known."),
    max_document=count("How many tokens of a document it read, where that is known."),
    note=string(),
)
LANGUAGE_DROP = record(
    {
        "system": SPEC,
        "source": TASK,
        "task": TASK,
        "language": string(),
        "before": share("The score on the source, over the questions that both have."),
        "after": share(),
        "left_out": count("Questions that only one of the two has."),
        "difference": difference("The other language minus the source.", holm=share("After Holm over all drops.")),
    }
)
BOARD = record(
    {
        "group": GROUP,
        "measure": string(),
        "tasks": array(string(), "The columns."),
        "lines": array(LINE),
        "notes": NOTES,
        "left_out": count("Rows that a limit left out."),
    },
    drops=array(LANGUAGE_DROP, "What systems lose on tasks that are translations."),
)

LISTED = {
    "run": string("Its id."),
    **WHERE,
    "group": GROUP,
    "created": string("ISO 8601."),
    "queries": count(),
    "documents": count(),
    "seconds": unknown(number("Of the whole run on the clock; null for an imported run.")),
    "imported": flag("Whether another tool made the lists."),
    "metrics": METRICS,
    "warnings": array(string()),
}
RUNS = array(record(LISTED))
RUN_RECORD = record({**LISTED, "record": anything("Everything that could change the result, and what the run took.")})

POSITIVE = record(
    {
        "document": string(),
        "cause": string(),
        "rank": unknown(count()),
        "oracle_rank": unknown(count("Its rank when the gold answer is searched with.")),
        "beyond": unknown(number("How much of what it shares with the answer lies beyond what the encoder reads.")),
    }
)
CASE = record({"query": string(), "cause": string(), "reason": string(), "positives": array(POSITIVE)})
LEVELS = record({level: table(MEAN, "Cause to its share.") for level in ("queries", "documents")})
DIAGNOSIS = record(
    {
        **WHERE,
        "deep_cutoff": count("What stands deeper counts as not found."),
        "shares": record({level: table(share(), "Cause to its share.") for level in ("queries", "documents")}),
        "oracle_run": string("The run with the gold answers that it is compared with; empty where there is none."),
        "notes": NOTES,
        "queries": array(CASE),
    },
    "One system on one task.",
)
CAUSES = record(
    {
        "diagnoses": array(DIAGNOSIS),
        "overall": table(LEVELS, "System to its shares over all tasks."),
        "changes": table(LEVELS, "System to how its shares differ from those of `against`."),
        "against": string("The system that is compared with; empty without --against."),
    }
)

CLIMB = shape(Climb)
GAP = record(
    {
        "gap": array(
            record(
                {
                    "task": TASK,
                    "queries": count(),
                    "encoder": string(),
                    "overlap": table(MEAN, "Pair of texts to the words that they have in common, weighted by rarity."),
                    "similarity": table(MEAN, "Pair of texts to the cosine of their vectors."),
                }
            )
        ),
        "ceiling": array(
            record(
                {
                    "base": SPEC,
                    "oracle": SPEC,
                    "system": SPEC,
                    "measure": string(),
                    "tasks": table(CLIMB),
                    "overall": CLIMB,
                }
            )
        ),
    }
)

PAIR = shape(Complement)
COMPLEMENT = array(
    record({"task": TASK, "deep_cutoff": count(), "union": share("Recall of all together."), "pairs": array(PAIR)})
)
COVERAGE = array(shape(Coverage))
SLICE_MEAN = record(
    {"mean": number(), "low": unknown(number()), "high": unknown(number())},
    "A mean with its 95% interval; null where a task has one query in the slice.",
)
LONE_MEAN = record(
    {"mean": number(), "low": {"type": "null"}, "high": {"type": "null"}}, "A mean of one query, which has no interval."
)


def slice_record(queries: Schema, mean: Schema) -> Schema:
    """A slice with so many queries."""
    means = array(mean, "One for each system, in order.")
    return record({"slice": string(), "queries": queries, "means": means}, difference=mean)


SLICES = table(
    array(
        {
            "oneOf": [
                slice_record(value("integer", const=1), LONE_MEAN),
                slice_record(value("integer", minimum=2), SLICE_MEAN),
            ]
        }
    ),
    "Way of slicing to its slices.",
)
FRONTIER = record(
    {
        "systems": array(record({"system": SPEC, "score": number(), **shape(Bill)["properties"], "oracle": flag()})),
        "frontier": table(array(string()), "Kind of cost to the systems that no other beats for as little."),
    }
)
VERIFIED = shape(
    VerifiedSystem,
    score=MEAN,
    ceiling=MEAN,
    distance=MEAN | {"description": "The ceiling minus the score, paired by query."},
    retrieval=MEAN | {"description": "What relevant documents that the system does not find take of the distance."},
    verification=MEAN | {"description": "The rest: those that it finds and ranks lower than the verifier does."},
)
VERIFICATION = record(
    {
        "oracle": value("boolean", "The pools hold the judgements: a ceiling, never a system.", const=True),
        "measure": string(),
        "tasks": array(
            record(
                {
                    "task": TASK,
                    "deep_cutoff": count("What stands deeper in a system's list counts as not found."),
                    "distractors": count("Of the smallest pool: lists may hold fewer than were asked for."),
                    "systems": array(VERIFIED, "Every system with every verifier."),
                    "queries": array(shape(VerifiedQuery)),
                    "left_out": table(table(string()), "Verifier to the queries that it could not order, and why."),
                    "unverified": array(
                        record(
                            {
                                "query": string(),
                                "document": string(),
                                "above": share("Of the distractors, with the verifier that ranks it highest."),
                            }
                        ),
                        "Relevant documents that every verifier ranks last, the most suspicious first.",
                    ),
                }
            )
        ),
        "overall": array(VERIFIED, "The same averaged over tasks."),
        "sentences": array(string(), "What may be concluded."),
    }
)

_BILL = shape(Bill)
SENSITIVITY = record(
    {
        "system": SPEC,
        "measure": string(),
        "longest": count("The limit that all others are compared with."),
        "lengths": array(
            record(
                {
                    "max_length": count("Tokens that are read at the most."),
                    "system": SPEC,
                    "score": number("The mean over tasks."),
                    "tasks": table(number(), "Task to score."),
                    "documents_cut": unknown(
                        share("Of documents, or pairs, that are longer; null where no model said.")
                    ),
                    "queries_cut": unknown(share("Of queries.")),
                    "difference": unknown(
                        difference("From the longest limit, paired by query.", holm=share("p after Holm over limits."))
                    ),
                    "differences": table(difference("The same on one task."), "By task."),
                }
            ),
            "The shortest first.",
        ),
        "sentences": array(string(), "What may be concluded."),
        "failures": array(record({"system": SPEC, "task": TASK, "error": string()}), "Limits that were left out."),
    }
)
SAVING = record(
    {
        "measure": string(),
        "by": value("string", "What costs are counted in.", enum=["money", "tokens", "seconds"]),
        "within": share("How much of the score may be given up."),
        "systems": array(
            record({"system": SPEC, "score": number(), "oracle": flag(), "frontier": flag(), **_BILL["properties"]})
        ),
        "routes": array(
            record(
                {
                    "cheap": SPEC,
                    "strong": SPEC,
                    "signal": SPEC,
                    "advantage": difference("Over a random choice of queries, on average over all shares."),
                    "p_holm": share("Its p-value after Holm over the signals of the pair."),
                    "points": array(
                        shape(
                            CurvePoint,
                            difference=record(
                                {"mean": number(), "low": number(), "high": number()},
                                "To the strong system alone, with its 95% interval.",
                            ),
                        )
                    ),
                    "bills": array(_BILL, "Of the cheap and the strong system."),
                }
            ),
            "For every two systems, the signals that kept lists tell.",
        ),
        "sentences": array(string(), "What this says, in words."),
    }
)
TUNED = record(
    {
        "system": SPEC,
        "measure": string(),
        "split": string("How queries were split."),
        "candidates": count(),
        "folds": array(shape(Fold), "One a split."),
        "gain": unknown(difference("Tuned less as written, on queries not chosen by; null for halves.")),
        "gain_mean": number("Over splits, each with its weight."),
        "gain_spread": unknown(number("The standard deviation over splits.")),
        "over_chance": unknown(difference("A route less a random choice of as many queries; null for halves.")),
        "over_chance_mean": unknown(number("A route less a random choice of as many queries, over splits.")),
        "over_chance_spread": unknown(number("The standard deviation over splits.")),
        "written": number("The mean of the system as it was written, over all queries."),
        "optimism": number("How much better the chosen one looks on the queries it was chosen by."),
        "best": SPEC,
        "idle": array(string(), "Options that no query's measure depends on."),
        "warnings": array(string(), "What makes the splits tell less than they seem to."),
    }
)

COEFFICIENT = record(
    {"value": unknown(number()), "low": unknown(number()), "high": unknown(number())},
    "A coefficient with its 95% interval; null where it is not defined, or questions are too few.",
)
COEFFICIENTS = table(
    COEFFICIENT, "raw, kappa, weighted-kappa (quadratic), alpha-nominal, -ordinal and -interval, ac1, ac2 (quadratic)."
)
STEPS = array(count(), "A row of the table.")
SET_PAIR = shape(
    SetPair,
    "chance",
    without=("coefficients",),
    agreement=COEFFICIENTS,
    slices=table(
        array(
            record(
                {
                    "slice": string(),
                    "pairs": count(),
                    "value": unknown(share("The share that got the same grade.")),
                    "low": unknown(number()),
                    "high": unknown(number()),
                }
            )
        ),
        "Way of slicing to its slices.",
    ),
)
LABEL_CHANGE = shape(
    LabelChange,
    systems=array(shape(SystemChange, change=MEAN), "The best under A first."),
    kendall=unknown(number("Kendall's tau of the two orders.")),
    kendall_interval=unknown(ENDS),
    conclusions=array(
        shape(
            Conclusion,
            "verdict",
            without=("corrected",),
            a=difference("The second minus the first under A.", holm=share()),
            b=difference("The same under B.", holm=share()),
        )
    ),
    stability=record(
        {
            "simulations": count(),
            "kendall": unknown(number("The mean of Kendall's tau with the order under A.")),
            "kendall_interval": unknown(ENDS),
        },
        "If labels were as wrong as the two sets disagree.",
    ),
)
AUDIT = shape(
    Audit,
    without=("coefficients",),
    agreement=COEFFICIENTS,
    set_pairs=array(SET_PAIR),
    changes=array(LABEL_CHANGE, "The first set against each other one; empty without runs."),
)

_SCORE = record({"mean": unknown(share()), "low": unknown(number()), "high": unknown(number())})


def _score(text: str) -> Schema:
    return _SCORE | {"description": text}


CORRECT = shape(
    CorrectedScores,
    systems=array(
        shape(
            CorrectedSystem,
            published=_score("Holes count as 0; the interval is over questions."),
            filled=_score("Holes as the first judge labels them; null without a judge."),
            corrected=_score("As people would label them; the interval has questions and labels in it."),
            labels=_score("The corrected score with the interval for these questions, from labels alone."),
            interaction=record(
                {"mean": unknown(number()), "low": unknown(number()), "high": unknown(number())},
                "Between two judges: by how much more than others it gains from the first.",
            ),
            places=table(
                array(count(), "First and last.", minItems=2, maxItems=2), "Score to the places that are not excluded."
            ),
        ),
        "The best by the last score that there is first.",
    ),
)
CORRECT_PLAN = array(shape(PlannedWidth))

CORRELATION = record(
    {
        "points": count(),
        "pearson": unknown(number()),
        "pearson_interval": unknown(ENDS),
        "spearman": unknown(number()),
        "spearman_interval": unknown(ENDS),
    },
    "A correlation; null where there are too few points.",
)
COUNTS = ("requests", "cached", "failed", "incomplete", "prompt_tokens", "completion_tokens", "reasoning_tokens")
ACCOUNT = record(
    {name: count() for name in COUNTS} | {"cost": unknown(number()), "paid": unknown(number()), "seconds": number()},
    "What was asked of the judge.",
)
ANSWERS = record(
    {
        "measure": string(),
        "results": array(
            record(
                {
                    **WHERE,
                    "queries": count(),
                    "accuracy": unknown(share("As judged by a model; null where none was asked.")),
                    "exact": share("Share that equals the gold answer."),
                    "contained": share("Share that contains it."),
                    "judged": count(),
                    "unparsable": count("Verdicts that could not be read."),
                    "missing": anything("Why answers were not judged."),
                    "correlation": CORRELATION,
                    "account": ACCOUNT,
                }
            )
        ),
        "over_queries": CORRELATION,
        "over_systems": CORRELATION,
        "notes": NOTES,
    }
)

LOW_HIGH = {"low": unknown(number()), "high": unknown(number())}
ACCURACY = {
    "type": ["object", "null"],
    "description": "A share with its 95% interval; null where nothing was decided.",
    "required": ["mean", "low", "high"],
    "properties": {"mean": share(), "low": number(), "high": number()},
}
RAG_SLOPE = record(
    {"points": count(), "slope": unknown(number("The rise of accuracy for a rise of the measure by 1.")), **LOW_HIGH},
    "A slope; null where it takes more systems, or they do not differ in retrieval.",
)
RAG_ARM = record(
    {
        "arm": string("Its name in reports."),
        "kind": string("closed, system, gold, random, hard, or run for a run file."),
        "oracle": flag("Whether its passages were chosen by judgements or gold answers: a limit, not a system."),
        "accuracy": ACCURACY,
        "tasks": table(ACCURACY, "Task to its accuracy."),
        "answers": shape(Counts),
        **shape(InView)["properties"],
        "retrieval": unknown(number("The measure of its lists, the mean over tasks; null for what is not a list.")),
        "quadrants": unknown(shape(Quadrants)),
        "grounding": shape(Grounding),
        "paired": unknown(shape(Paired, difference=difference("The arm minus closed, paired by question."))),
        "way_to_gold": unknown(shape(WayToGold, share=unknown(number()), **LOW_HIGH)),
        "harm": table(
            record(
                {
                    "events": count("Broken answers."),
                    "others": count("Answers that stay right."),
                    "auc": unknown(share("How often the signal is lower for a broken one.")),
                    **LOW_HIGH,
                }
            ),
            "Signal known beforehand (score, gap, agreement) to how well it tells broken answers.",
        ),
        "nuggets": unknown(
            shape(
                NuggetRecall,
                recall=table(ACCURACY, "Kind of recall to its mean over tasks, with the 95% interval."),
                differences=table(
                    unknown(difference("The arm minus closed, paired by question.")),
                    "Kind of recall to what passages change; null for closed, and if closed was not asked.",
                ),
            )
        ),
        "account": ACCOUNT,
        "judge_account": ACCOUNT,
    },
    "One arm over all tasks.",
)
RAG = record(
    {
        "study": string("Arms of one study share model, prompt, numbers and judge, and may be compared."),
        "settings": anything(
            "What all arms share: models with their sampling, prompt, k, budget, order, samples, nuggets."
        ),
        "tasks": array(TASK),
        "arms": array(RAG_ARM),
        "over_systems": RAG_SLOPE,
        "within_queries": RAG_SLOPE,
        "notes": NOTES,
    }
)
RAG_ESTIMATE = shape(Estimate)
RAG_PLAN = record(
    {
        "study": string(),
        "arms": array(
            record(
                {
                    "arm": string(),
                    "task": TASK,
                    "questions": count(),
                    "answers": RAG_ESTIMATE,
                    "verdicts": unknown(RAG_ESTIMATE),
                }
            )
        ),
        "answers": RAG_ESTIMATE,
        "verdicts": unknown(RAG_ESTIMATE),
        "first_prompt": string("The first one with passages."),
        "notes": NOTES,
        "cost": unknown(number("US dollars that are left to pay for.")),
        "cost_limit": unknown(number("If every reply were as long as it may be.")),
    }
)

PROBLEM = record(
    {
        "severity": string("error or warning."),
        "code": string("The kind of problem, in a word."),
        "file": string(),
        "line": count("Or the row of a parquet file, counted from 1; 0 where it concerns the whole file."),
        "message": string(),
    }
)
VALIDATE = array(shape(ValidationReport, "ok", "errors", "warnings", without=("strict",), problems=array(PROBLEM)))

AFFECTED = shape(Share, "share")
HIT = record(
    {
        "file": string(),
        "line": count(),
        "task": TASK,
        "kind": string("query, positive or document."),
        "id": string(),
        "method": string(),
        "score": share(),
    }
)
LEAKAGE = record(
    {
        "leaks": flag(),
        "rows": count(),
        "affected_rows": count(),
        "affected_rows_with_documents": count(),
        "tasks": array(record({"task": TASK, "queries": AFFECTED, "positives": AFFECTED, "documents": AFFECTED})),
        "pairs": count(),
        "strongest": array(HIT),
        "files": table(count(), "File to its rows."),
        "settings": anything("What was compared, and how."),
        "excluded": table(count(), "Cleaned file to the rows that were left out."),
    }
)

SUBMITTED = record(
    {
        **WHERE,
        "group": GROUP,
        "run": string(),
        "created": string("ISO 8601."),
        "file": string("The ranked lists, in the archive."),
        "queries": count(),
        "documents": count(),
        "metrics": METRICS,
        "incomplete": count(),
        "cost": COST,
        "data": anything("Fingerprints and revision."),
    }
)
VERIFY = shape(Verified, "ok", results=array(SUBMITTED))

STATS = array(shape(Stats))
TEXTS = ("name", "family", *Task.WORDS, "hub", "revision")
TASKS = array(
    record(
        {name: string() for name in TEXTS}
        | {
            "group": GROUP,
            "queries": count(),
            "documents": count(),
            "qrels": count(),
            "query_length": unknown(number("Mean, in words (full) or characters (nano).")),
            "document_length": unknown(number()),
            "licence": unknown(string("Of the hub's card, or of the bundled sample; null where it is not known.")),
            "source_licence": unknown(string("Of the source of its texts; null unless it is known to differ.")),
            "sentence": string("The instruction that prompts are made of."),
        }
    )
)

INSPECT = array(shape(Case))

SEARCH = record(
    {
        "system": string(),
        "query": string("The question as it was asked."),
        "task": TASK,
        "hits": array(shape(Hit), "Best first."),
    }
)
LABEL = record(
    {
        "labels": table(count(), "Class to the number of its queries."),
        "unparsable": table(string(), "Query to a reply that names no class, or several."),
        "failed": table(string(), "Query to the reason why there is no reply."),
        "cost": unknown(number("US dollars.")),
        "file": string("The table that was written."),
    }
)

LISTS = record(
    {"ndcg_at_10": share(), "hit_at_10": share(), "recall_at_100": share("Micro: found over all there are.")}
)
PROFILES = table(LISTS, "bm25, dense or hybrid to its figures.")
PROFILE = array(
    record(
        {
            "set": string(),
            "dense": unknown(string("The system of the dense lists.")),
            "tasks": array(
                shape(TaskProfile, best=string("The list with the highest nDCG@10."), best_published=unknown(string()))
            ),
            "averages": table(PROFILES, "query-weighted and macro."),
            "published_averages": table(PROFILES),
        }
    )
)
NANO_BUILD = record(
    {
        "folder": string(),
        "format": count(),
        "r2med": string("The version that built it."),
        "recipe": anything("Every parameter that was given."),
        "candidates": table(anything("How a kind of lists was made.")),
        "splits": table(
            record(
                {
                    "source": anything("Name, group, revision and fingerprint."),
                    "task": anything("What the task is called in prompts, and its sizes."),
                    "counts": table(count()),
                    "fingerprint": string(),
                    "safeguards": table(string(), "Query to the relevant document that was added to its list."),
                }
            )
        ),
    }
)
FLIP = record(
    {
        "first": SPEC,
        "second": SPEC,
        "nano": number("The difference on the nano set."),
        "nano_interval": unknown(ENDS),
        "full": number("The difference on the source."),
        "full_interval": unknown(ENDS),
        "clear": flag("Whether both differences lie beyond their intervals."),
    }
)
AGREEMENT = record(
    {
        "task": TASK,
        "measure": string(),
        "queries": count("Those that both have."),
        "queries_nano": count(),
        "queries_full": count(),
        "shifts": array(
            record(
                {
                    "system": SPEC,
                    "nano": share(),
                    "full": share("Over the queries that both have."),
                    "full_all": share("Over all queries of the source."),
                    "shift": number(),
                    "interval": unknown(ENDS),
                }
            )
        ),
        "shift": number("The mean over the systems."),
        "shift_interval": unknown(ENDS),
        "spearman": unknown(number()),
        "spearman_interval": unknown(ENDS),
        "kendall": unknown(number()),
        "kendall_interval": unknown(ENDS),
        "pairs": count("Pairs of systems."),
        "flips": array(FLIP, "Pairs that change places."),
    }
)
NANO_AGREE = record({"tasks": array(AGREEMENT), "average": unknown(AGREEMENT)}, failures=array(FAILURE))

REPRODUCE = record(
    {
        "measure": string(),
        "compared": array(
            record(
                {
                    "system": SPEC,
                    "name": string("Of the published row."),
                    "source": string(),
                    "task": string("The task, or `average`."),
                    "published": unknown(share()),
                    "measured": share(),
                    "low": number("Low end of the 95% interval of what was measured."),
                    "high": number(),
                    "verdict": string("within rounding, within the interval, different, or why there is none."),
                    "difference": unknown(number("Measured less published.")),
                }
            )
        ),
        "failures": array(FAILURE),
    }
)
REPRODUCE_PLAN = record(
    {
        "tasks": array(TASK),
        "systems": array(
            record(
                {
                    "system": SPEC,
                    "published": array(string(), "Rows that it stands for, with their sources."),
                    "needs": record(
                        {},
                        extras=array(string()),
                        keys=array(string()),
                        hub=array(string()),
                        gpu=flag(),
                    ),
                    "notes": NOTES,
                }
            )
        ),
    }
)

_ENCODER_TEXTS = (
    "name id revision query_id query_revision package subfolder query_subfolder query_table autoencoder backend "
    "pooling attention padding similarity dtype adapter adapter_revision url tokenizer licence notes published"
).split()
_ENCODER_FLAGS = (
    "normalize exclude_prompt prompt_passages lowercase pair append_eos remote_code input_types gated".split()
)
WORDING = value("string", "What stands before a text, or texts by family.") | {"type": ["string", "object"]}
ENCODER = {name: string() for name in _ENCODER_TEXTS} | {
    **{name: flag() for name in _ENCODER_FLAGS},
    "query_prompt": WORDING,
    "document_prompt": WORDING,
    "max_query": count("Tokens that are read; 0 for all."),
    "max_document": count(),
    "max_terms": count("Terms of a sparse vector that are kept at the most; 0 for all."),
    "dense": array(string(), "Folders of layers after the pooling."),
    "parameters": number("In millions; 0 if not known."),
    "price": unknown(number("US dollars a million tokens, of a model that is sold.")),
}
RERANKER = {
    "name": string(),
    "id": string(),
    "parameters": unknown(number("In millions.")),
    "context": unknown(count("Tokens of a pair that are read.")),
    "licence": string(),
    "needs": string("A GPU or a key; empty for nothing."),
}
LATE = {
    "name": string(),
    "id": string(),
    "parameters": unknown(number("In millions.")),
    "dimension": unknown(count("Numbers of a token's vector.")),
    "query_prefix": unknown(string("What stands before a query, as published.")),
    "document_prefix": unknown(string()),
    "query_length": unknown(count("Tokens of a query that are read, as published.")),
    "document_length": unknown(count()),
    "expansion": unknown(string("How a query is filled up with mask tokens: off, fixed or min.")),
    "licence": string(),
    "needs": string("What must be allowed; empty for nothing."),
}
CHAT = {
    "name": string(),
    "id": string(),
    "reasoning": flag(),
    "prompt_price": unknown(number("US dollars a million tokens.")),
    "completion_price": unknown(number()),
    "url": string(),
    "needs": string("The variable that holds its key; empty for none."),
}
CARDS = {"encoder": record(ENCODER), "reranker": record(RERANKER), "late": record(LATE), "llm": record(CHAT)}
ENGINES = array(
    record(
        {
            "name": string("What specs or `r2med engines show` call it."),
            "stage": string("`http` for a preset, `sql` for a statement that ships as an example."),
            "searches": array(string(), "By `text`, by `vectors`, or both."),
            "versions": string("The versions that its requests were written for."),
            "key": string("The environment variables with its key or address; empty where it needs none."),
        }
    )
)

PUSHED = {
    "engine": string(),
    "index": string("The index, core, collection, class or table."),
    "documents": count("How many there are to push."),
    "left_out": count("Documents without text, which have no vector."),
}
INDEX = {
    "oneOf": [
        record(
            {
                **PUSHED,
                "sent": count("By this command; the others were there already."),
                "count": count("What the engine counts afterwards."),
                "seconds": number(),
                "system": string("The spec that searches what was pushed."),
                "warnings": array(string()),
            }
        ),
        record(
            {
                **PUSHED,
                "batches": count("Requests."),
                "bytes": count("About as many are sent, vectors included."),
                "to_encode": count("Texts to encode before."),
                "mapping": string("How the index is made."),
            },
            "With --dry-run.",
        ),
    ]
}

MODELS = {
    "oneOf": [
        *(array(card, f"The cards of one kind: {kind}.", minItems=1) for kind, card in CARDS.items()),
        record({kind: array(card) for kind, card in CARDS.items()}, "With --all."),
    ]
}
STRINGS = record({"query": string(), "document": string(), "passage": string()}, "What is encoded, word for word.")
MODEL = {
    "oneOf": [
        record({**ENCODER, "task": string("Whose words the prompts are made of."), "strings": STRINGS}),
        record(LATE, "A late-interaction model, as published."),
        record(
            RERANKER
            | {
                "prompt": unknown(string("What it reads; null where only its server knows.")),
                "answer": unknown(string("What it answers.")),
                "notes": string(),
            },
            "A reranker.",
        ),
        record(CHAT, "A language model."),
    ]
}

CACHE = array(
    record(
        {
            "kind": string("bm25, vectors, scores, answers, ..."),
            "what": string("The model and its server; empty for indexes."),
            "holds": string("How many entries, texts, pairs or answers."),
            "bytes": count(),
        }
    )
)
DOCTOR = record(
    {
        "versions": table(string()),
        "extras": table(string(), "Extra to `installed`, or to what is missing."),
        "devices": table(string()),
        "keys": table(string(), "Variable to `set` or `not set`; a key is never shown."),
        "storage": table(string()),
    }
)

_SPENT = record(
    {
        "requests": count("Replies that were used, kept ones included."),
        "prompt_tokens": count(),
        "completion_tokens": count(),
        "cost": unknown(number("US dollars; null where a price is not known.")),
    },
    "What the step took of models, whoever paid and when.",
)
_REASONS = table(count(), "How many, by reason.")
BUILD = record(
    {
        "folder": string("The folder of the plan."),
        "steps": array(
            record(
                {
                    "step": string("Its name; `(so far)` after it where it is not finished."),
                    "items": count("Questions, documents, passages or pairs."),
                    "kept": count("Those that go on to the next step."),
                    "dropped": _REASONS,
                    "failed": table(count(), "Those that no model answered, which the next run asks about."),
                    "marks": table(count(), "What is to be known of items although they go on."),
                    "spent": _SPENT,
                    "names": table(array(string()), "The files that were dropped, by reason; empty for other steps."),
                }
            )
        ),
        "task": unknown(string("The finished task; null where there is none yet.")),
        "people": unknown(shape(PeopleProgress)),
    }
)
_STEP_COUNT = BUILD["properties"]["steps"]
TRAIN_DATA = record(
    {
        "file": string("The data."),
        "card": string("Its card."),
        "rows": record({"train": count(), "dev": count(), "positives": count(), "negatives": count()}),
        "types": table(count(), "How many negatives are wrong in which way; an empty name where nobody was asked."),
        "steps": _STEP_COUNT,
        "held_out": record(
            {
                "questions": count(),
                "groups": count("Of questions that have something in common; a group lies in one part."),
                "largest": count("The questions of the largest group."),
                "shared_questions": count("Of dev, with the same or nearly the same words as one of train."),
                "shared_positives": count("Of dev, that are positives in train."),
            }
        ),
        "sources_judged_positive": unknown(
            share("Of the passages that questions were written from, how many the judges call evidence; never used.")
        ),
        "licence": string("Of the texts; `not stated` where nobody said."),
        "origin": string("The documents or the build."),
        "leakage": record(
            {
                "checked": array(TASK, "What the data was compared with."),
                "unchecked": table(string(), "What it could not be compared with, and why."),
                "affected_rows": count("Rows with a query or a positive of a task."),
                "dropped_rows": count("Those that were left out."),
                "allow_leakage": flag(),
                "allow_unchecked": flag(),
                "tasks": array(anything("What was found of a task, as in leakage.json.")),
                "strongest": array(anything("Pairs of a row and a text of a task, the surest first.")),
            }
        ),
    }
)
TRAIN_EXPORT = record(
    {
        "folder": string(),
        "format": string(),
        "files": table(count(), "Bytes of each file."),
        "questions": record({"train": count(), "dev": count()}, "Rows of each part, before formats expand them."),
    }
)
BUILD_PUBLISH = shape(Publication)
_ESTIMATE = shape(Estimate)["properties"]
BUILD_PLAN = array(record({"step": string(), "items": count("Those that are not kept yet."), **_ESTIMATE}))
_OPINION = record(
    {
        "judge": string(),
        "answers": number("How far the passage establishes the answer."),
        "supports": number("How far it holds knowledge that the answer rests on."),
        "reason": string(),
        "quote": string(),
        "quote_state": value("string", "Whether the quote occurs in the passage.", enum=["found", "invented", "none"]),
    }
)
BUILD_SHOW = record(
    {
        "id": string(),
        "steps": table(anything("What the step found."), "By the name of the step."),
        "candidates": array(
            record(
                {
                    "passage": string(),
                    "found": array(
                        record({"system": string(), "view": string(), "rank": count("0 for the known source.")})
                    ),
                    "verdict": unknown(string("positive, band, negative or unjudged; null before the selection.")),
                },
                answers=number("Of all opinions, combined."),
                supports=number("Of all opinions, combined."),
                opinions=array(_OPINION),
                unread=count("Replies of judges that could not be read."),
                dropped=string("Why it was sorted out."),
                failed=string("Why no judge answered."),
            ),
            "The highest scores first.",
        ),
        "dropped": string("The step that dropped the question, and why; empty where none did."),
    }
)

REVIEW = shape(ReviewProgress)
_AGREEMENT_ROW = record(
    {
        "name": string(),
        "items": count(),
        "agreement": table(COEFFICIENT, "Name of a coefficient to its value."),
    }
)
_RATE = unknown(
    record(
        {
            "value": share(),
            "low": share(),
            "high": share(),
            "human": count("Items that people judged."),
            "predicted": count("Further items that only models judged."),
            "method": string("prediction-powered, or people alone."),
        },
        "A rate with its 95% interval; null where nothing can be said.",
    )
)
REVIEW_AGREEMENT = record(
    {
        "review": string(),
        "scale": array(count(), "Every grade."),
        "reviewers": array(string(), "Those whose agreement the figures are."),
        "items": count("Items that two of them at least graded, and that the figures are over."),
        "questions": count(),
        "at_random": flag("Whether these items were drawn at random."),
        "set_aside": count("Items that two graded and that were not drawn at random, which the figures leave out."),
        "agreement": table(COEFFICIENT, "Name of a coefficient to its value."),
        "pairs": array(SET_PAIR, "Every two reviewers, models and imports included."),
        "slices": table(array(_AGREEMENT_ROW), "Way of slicing to its slices."),
        "periods": array(_AGREEMENT_ROW, "By thirds, in the order of decisions."),
        "repeats": array(_AGREEMENT_ROW, "Each person's second look against the first."),
        "gold": array(_AGREEMENT_ROW, "Each reviewer against what is known to be right."),
        "estimates": record(
            {
                "frame": count("Pairs that the random part was drawn from."),
                "drawn": count(),
                "precision": _RATE,
                "overlooked": _RATE,
                "missed": _RATE,
            },
            "How right the labels of the task are, by the random part.",
        ),
        "notes": array(string()),
    },
    "How far reviewers agree.",
)
REVIEW_EXPORT = shape(
    LabelExport,
    settings=record(
        {
            "binary": flag("Whether every relevant grade is written as 1."),
            "open_answer": flag("Whether everybody saw the gold answer from the start."),
        },
        "How the labels were come by.",
        rule=string("A ruling first, then the rule."),
        reviewers=array(string(), "Whose labels count."),
        labels=count(),
        ruled=count("Labels that an adjudicator decided."),
        undecided=count("Items on which reviewers differ, and which are left out."),
    ),
)
REVIEW_JUDGE = shape(ModelJudging)
REVIEW_JUDGE_PLAN = shape(Estimate)
REVIEW_IMPORT = shape(ImportedLabels)
_SHARE = record(
    {"part": count(), "whole": count(), "value": share(), "low": share(), "high": share()},
    "A share with Wilson's 95% interval.",
)
_POPULATION = shape(PopulationEstimate, "complete")
_FINDER = record(
    {
        "name": string(),
        "alone": count("Positives that no other found."),
        "part": count("Positives that it found."),
        "whole": count("All positives."),
        "value": share(),
        "low": share(),
        "high": share(),
    }
)
BUILD_CHECK = shape(
    TaskHealth,
    "verdict",
    without=("split", "measured"),
    findings=array(
        shape(
            HealthRule,
            value=unknown(number()),
            low=unknown(number()),
            high=unknown(number()),
            verdict=value("string", enum=["good", "doubtful", "poor", "unknown"]),
        )
    ),
    scores=array(
        record({"answers": number(), "supports": number(), "verdict": string(), "pairs": count()}),
        "How many pairs have which scores, of all pools.",
    ),
    coverage=shape(
        PoolCoverage,
        members=array(_FINDER),
        views=array(_FINDER),
        sources=unknown(_SHARE),
        missed=_POPULATION,
    ),
    bias=array(shape(PoolBias, change=MEAN)),
    gap=unknown(anything("As `r2med diagnose --gap --json` has it.")),
    second=unknown(
        record(
            {
                "share": share("Of the pairs of each verdict."),
                "pairs": count("Those that were judged again."),
                "unread": count("Those that could not be."),
                "confusion": table(table(count()), "First verdict to second verdict to how many pairs."),
                "stays": unknown(_SHARE),
                "joins": unknown(_SHARE),
                "agreement": COEFFICIENTS,
                "spent": _SPENT,
            },
            "What judges said when they were asked again.",
        )
    ),
    leakage=record(
        {
            "questions": count(),
            "repeated": array(record({"question": string(), "repeats": string(), "how": string()})),
            "sharing": count("Questions that share a positive with another."),
            "across": array(record({"question": string(), "other": string(), "shared": string()})),
        }
    ),
    baselines=array(shape(Baseline, score=MEAN)),
    measure=string(),
)

BUILD_TRANSLATE = record(
    {
        "source": TASK,
        "folder": string("With a folder for each language in it."),
        "languages": array(
            record(
                {
                    "language": string("Its code, such as es."),
                    "questions": count(),
                    "passed": count("Those that passed every gate."),
                    "kept": count("Those in the task."),
                    "gates": table(count(), "Questions by the first gate that stopped them."),
                    "spent": _SPENT,
                }
            )
        ),
    }
)
SHAPES: Mapping[str, tuple[str, str, Any]] = {
    "run": (
        "r2med run --json, r2med eval --json",
        "Scores of systems on tasks; what failed is in no average.",
        RUN,
    ),
    "plan": ("r2med run --dry-run --json", "What would be run, and what it would need and cost.", PLAN),
    "compare": ("r2med compare --json", "Paired differences of systems, query by query.", COMPARE),
    "compare-plan": (
        "r2med compare --plan --json",
        "How many queries a difference of two systems needs.",
        array(shape(PowerPlan)),
    ),
    "board": ("r2med board --format json", "Published rows and local runs, ranked together.", BOARD),
    "board-factors": (
        "r2med board --factors --format json",
        "How much of the variance of a board is due to task, retriever, language model and method.",
        shape(Factors),
    ),
    "runs": ("r2med runs --json", "Runs of the ledger, the last one made or used first.", RUNS),
    "run-record": ("r2med runs show --json", "Everything recorded of a run.", RUN_RECORD),
    "causes": ("r2med diagnose --json", "Why relevant documents are missed, by query and by document.", CAUSES),
    "gap": ("r2med diagnose --gap --json", "How far queries are from their documents, and the ceiling.", GAP),
    "complement": ("r2med diagnose --complement --json", "What one system finds and another does not.", COMPLEMENT),
    "coverage": ("r2med diagnose --coverage --json", "How much of the results is judged.", COVERAGE),
    "slices": ("r2med diagnose --slices --json", "Scores by kind of query.", SLICES),
    "cost": ("r2med diagnose --cost --json", "Score against money, tokens and time.", FRONTIER),
    "verification": (
        "r2med diagnose --verify --json",
        "The ceiling of a strong reranker with the relevant documents in the pool, and the way to it.",
        VERIFICATION,
    ),
    "sensitivity": ("r2med sensitivity --json", "How a figure moves with the tokens that are read.", SENSITIVITY),
    "frontier": ("r2med frontier --json", "What systems cost, and what routing between them would save.", SAVING),
    "tune": ("r2med tune --json", "Options chosen on some queries and measured on the others.", TUNED),
    "audit": ("r2med audit --json", "Agreement of label sets, and systems under each of them.", AUDIT),
    "correct": ("r2med correct --json", "Scores as published, filled by a judge, and corrected by people.", CORRECT),
    "correct-plan": ("r2med correct --plan --json", "Which interval how many human labels would give.", CORRECT_PLAN),
    "review": (
        "r2med review new --json, r2med review show --json",
        "How a review stands: items, people, agreement so far, and what is unclear.",
        REVIEW,
    ),
    "review-agreement": (
        "r2med review agreement --json",
        "How far reviewers agree, and how right the labels of the task are.",
        REVIEW_AGREEMENT,
    ),
    "review-export": ("r2med review export --json", "What was written of a review.", REVIEW_EXPORT),
    "review-import": ("r2med review import --json", "What came in from a file.", REVIEW_IMPORT),
    "review-judge": ("r2med review judge --json", "What a model said of a review.", REVIEW_JUDGE),
    "review-judge-plan": (
        "r2med review judge --dry-run --json, r2med correct --dry-run --json",
        "What asking a model would take.",
        REVIEW_JUDGE_PLAN,
    ),
    "reviews": ("r2med review list --json", "How every review stands.", array(REVIEW)),
    "answers": ("r2med answers --json", "Whether generated answers are right, and whether that helps.", ANSWERS),
    "rag": ("r2med rag --json", "Answers with and without passages, and what that changed.", RAG),
    "rag-nuggets": ("r2med rag --write-nuggets --json", "What a model wrote of nuggets.", shape(WrittenNuggets)),
    "rag-nuggets-plan": (
        "r2med rag --write-nuggets --dry-run --json",
        "What writing nuggets would take.",
        shape(Estimate),
    ),
    "rag-plan": ("r2med rag --dry-run --json", "What a study would ask, and what it would cost.", RAG_PLAN),
    "validate": ("r2med tasks validate --json", "Problems of data folders.", VALIDATE),
    "leakage": ("r2med leakage --json", "Whether training data holds what is evaluated on.", LEAKAGE),
    "verify": ("r2med verify --json", "Whether a submission is what it says.", VERIFY),
    "stats": ("r2med tasks stats --json", "Sizes and lengths of tasks.", STATS),
    "tasks": ("r2med tasks --json, r2med tasks show --json", "The registered tasks.", TASKS),
    "inspect": ("r2med inspect --json", "Queries with what was asked, generated and found.", INSPECT),
    "search": ("r2med search --json", "What a system finds for a question.", SEARCH),
    "label": ("r2med label --json", "How many queries a language model put into each class.", LABEL),
    "reproduce": ("r2med reproduce --json", "Published against measured figures, with a verdict.", REPRODUCE),
    "reproduce-plan": ("r2med reproduce --dry-run --json", "What would run, and what it needs.", REPRODUCE_PLAN),
    "build": ("r2med build run --json, r2med build status --json", "How far a build is, step by step.", BUILD),
    "build-plan": (
        "r2med build run --dry-run --json, r2med train data --dry-run --json",
        "What each step of a build, or of making training data, would ask and cost.",
        BUILD_PLAN,
    ),
    "build-show": ("r2med build show --json", "Everything about one question of a build.", BUILD_SHOW),
    "build-check": ("r2med build check --json", "Whether a built task is any good.", BUILD_CHECK),
    "build-publish": ("r2med build publish --json", "What was or would be pushed to the hub.", BUILD_PUBLISH),
    "build-translate": ("r2med build translate --json", "How a translation of questions went.", BUILD_TRANSLATE),
    "compare-languages": (
        "r2med compare --languages --json",
        "What asking in other languages costs systems, paired by question.",
        array(LANGUAGE_DROP),
    ),
    "train-data": ("r2med train data --json", "Training data that was made, and what the gate said.", TRAIN_DATA),
    "train-export": ("r2med train export --json", "Training data as other trainers read it.", TRAIN_EXPORT),
    "nano-build": ("r2med nano build --json", "What a nano set was made from, and how.", NANO_BUILD),
    "nano-profile": ("r2med nano profile --json", "How the candidate lists of nano sets do.", PROFILE),
    "nano-agree": ("r2med nano agree --json", "How well a nano set stands for its source.", NANO_AGREE),
    "index": (
        "r2med engines push --json",
        "What was or would be pushed to an engine.",
        INDEX,
    ),
    "engines": ("r2med engines --json", "Search engines that can be asked.", ENGINES),
    "models": ("r2med models --json", "The cards of models.", MODELS),
    "model": (
        "r2med models show --json",
        "One model; an encoder with the exact strings that are encoded, a reranker with its prompt.",
        MODEL,
    ),
    "cache": ("r2med cache --json", "What is kept beside the ledger.", CACHE),
    "doctor": ("r2med doctor --json", "Versions, extras, devices, keys and storage.", DOCTOR),
}
"""Every schema by name: the commands that print it, what it says, and the shape."""


def schema_file(name: str) -> str:
    """A schema as its file holds it."""
    commands, text, shape = SHAPES[name]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": commands}
    shape = shape if isinstance(shape, dict) else type_schema(shape)
    return json.dumps(head | shape | {"description": text}, indent=2, ensure_ascii=False) + "\n"
