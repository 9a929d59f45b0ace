"""The search engines that documents can be put into, by the names of their presets."""

from __future__ import annotations

from collections.abc import Mapping

from r2med.exchange.index_target import IndexTarget
from r2med.exchange.text_engine_index import (
    ElasticsearchIndex,
    MeilisearchIndex,
    OpenSearchIndex,
    SolrIndex,
    TypesenseIndex,
    VespaIndex,
)
from r2med.exchange.vector_engine_index import MilvusIndex, QdrantIndex, WeaviateIndex

TARGETS: Mapping[str, type[IndexTarget]] = {
    "elasticsearch": ElasticsearchIndex,
    "opensearch": OpenSearchIndex,
    "solr": SolrIndex,
    "vespa": VespaIndex,
    "qdrant": QdrantIndex,
    "weaviate": WeaviateIndex,
    "typesense": TypesenseIndex,
    "meilisearch": MeilisearchIndex,
    "milvus": MilvusIndex,
}
