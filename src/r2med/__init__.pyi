# Written by scripts/make_reference.py from the program itself; renew it with: make reference

from r2med.api import board as board
from r2med.api import build as build
from r2med.api import compare as compare
from r2med.api import diagnose as diagnose
from r2med.api import evaluate as evaluate
from r2med.api import load as load
from r2med.api import rag as rag
from r2med.api import search as search
from r2med.api import tune as tune
from r2med.data.dataset import Dataset as Dataset
from r2med.data.run import Run as Run
from r2med.engines.user import retriever as retriever
from r2med.errors import R2medError as R2medError
from r2med.expand.agents import SearchO1 as SearchO1
from r2med.expand.agents import SearchR1 as SearchR1
from r2med.expand.methods import Answer as Answer
from r2med.expand.methods import HyDE as HyDE
from r2med.expand.methods import LameR as LameR
from r2med.expand.methods import OracleAnswer as OracleAnswer
from r2med.expand.methods import Query2Doc as Query2Doc
from r2med.expand.replay import Replay as Replay
from r2med.measure.metrics import Measure as Measure
from r2med.pipeline.evaluate import Options as Options
from r2med.pipeline.system import System as System
from r2med.rerank.api import ApiRerank as ApiRerank
from r2med.rerank.cross_encoder import CrossEncoder as CrossEncoder
from r2med.rerank.groupwise import Groupwise as Groupwise
from r2med.rerank.listwise import Listwise as Listwise
from r2med.rerank.pointwise import Pointwise as Pointwise
from r2med.retrieve.bm25 import BM25 as BM25
from r2med.retrieve.bm25 import BM25Classic as BM25Classic
from r2med.retrieve.colbert import ColBERT as ColBERT
from r2med.retrieve.dense import Dense as Dense
from r2med.retrieve.fusion import RRF as RRF
from r2med.retrieve.fusion import CombMNZ as CombMNZ
from r2med.retrieve.fusion import Views as Views
from r2med.retrieve.fusion import WeightedSum as WeightedSum
from r2med.retrieve.sparse import Splade as Splade
from r2med.runs.report import Report as Report

__version__: str
