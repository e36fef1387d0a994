"""A served hub for each file, with a channel and a topic."""

from tests.http.entries.conftest import hub as hub
from tests.http.entries.conftest import ids as ids
