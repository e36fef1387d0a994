"""Defines the digest's columns and limits."""

from spark import schemas
from spark.jobs.digest.plan import SCHEMA

NAME = SCHEMA
OUTPUT = schemas.tables(NAME)
REPLY_SECONDS_MAX = 86_400  # a later message does not count as an answer
KEYWORDS_MAX = 10  # per topic, like the others
SIMILAR_MAX = 5
ANSWERS_MAX = 5
TERMS_COMPARED_MAX = 50  # per topic: the best ones decide the similarity
TOPICS_COMPARED_MAX = 500  # more common terms don't tell topics apart, and have too many pairs
SIMILARITY_MIN = 0.1
TERM_CHARACTERS_MAX = 40
# Kana, Han, Hangul and Bopomofo, whose words are not separated by spaces; as the search does it.
CJK = (
    r"[\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    r"\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    r"\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc]"
)
WORD = r"(?U)\w+"  # letters, digits and underscores; a term has at least one letter
LETTER = r"\p{L}"
