"""Our rules for prose: habits that make texts hard to read, each with examples.

A rule must rarely be wrong: people learn to work around one that often is. The rule finds the
texts in `caught` and not those in `passed`; `test_prose.py` tests both. The words that the
glossary replaces (its column "Instead of") are rules too, made by `vocabulary`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# The beginning of a text or of a sentence.
START = r"(?:^|(?<=[.;:!?])\s+|(?<=[(|])\s*)"
# The rest of a sentence that is not a question.
STATEMENT = r"(?=[^?]*?(?:[.!;:)]|$))(?![^.!;:)]*\?)"
VERB = (
    r"(?:is|are|was|were|isn't|aren't|can|can't|cannot|may|must|will|has|have|does|doesn't|do|don't|"
    r"stays?|comes?|goes|gets?|becomes?|belongs?|stands?|waits?|ends?|fails?|leaves?|needs?)"
)


class Rule(NamedTuple):
    name: str
    pattern: str
    suggestion: str
    caught: tuple[str, ...]
    passed: tuple[str, ...]
    kinds: tuple[str, ...] = ()  # of texts; none: all
    exempt: tuple[str, ...] = ()  # beginnings of paths that the rule skips


def rule(
    name: str,
    pattern: str,
    suggestion: str,
    *,
    caught: str,
    passed: str,
    kinds: tuple[str, ...] = (),
    exempt: tuple[str, ...] = (),
) -> Rule:
    """Examples are separated by a bar."""
    return Rule(name, pattern, suggestion, split(caught), split(passed), kinds, exempt)


def split(examples: str) -> tuple[str, ...]:
    return tuple(example.strip() for example in examples.split("|"))


RULES = (
    rule(
        "sentence-start",
        rf"{START}(?-i:It|It's|Its|Those|The\s+same|Whoever)\b(?!\s*$)"
        rf"|{START}(?-i:None)\s+(?:of|is|are|was|were|has|have|can|may|must|will)\b"
        rf"|{START}(?-i:What)\b(?!')(?!.*:$){STATEMENT}",
        "repeat the noun",
        caught="It sends the mail. | The file is written. Its owner is root. | The same key fails."
        " | None of the callbacks may wait. | What the channel is for. | Whoever waits is told",
        passed="Find its owner. | None if there is no row. | What is the port?"
        " | It | None: no limit. | What is new:",
        kinds=("paragraph", "docstring", "comment", "string"),
        exempt=("spark/", "tests/"),
    ),
    rule(
        "fused-who",
        rf"{START}who(?:ever)?\b(?!\s+(?:am|are|is)\s+(?:I|you|we)\b){STATEMENT}"
        r"|\b(?:for|to|by|from|with|without|than|against|before|after)\s+who(?:ever)?\b"
        r"|\b(?:tells?|gives?|helps?|refuses?|lets?|wakes?|answers?|costs?)\s+who(?:ever)?\b",
        "name them: clients that send a lot, callers that wait",
        caught="Who has much to send uses batches. | for who waits"
        " | it is refused: who uses it is told | OpenMetrics to who asks for it"
        " | It wakes who waits.",
        passed="Who may read this? | the tokens of clients who wait | a list of who sent it"
        " | Clients that send a lot use batches.",
    ),
    rule(
        "fused-what",
        rf"{START}what\s+(?:is|was|are|were|has|had|can|can't|may|must|does|runs|waits|comes|came|"
        rf"stays|lies|needs|follows|failed|ended)\b[^.;:!?|,]*?\w\s+{VERB}\s+\w"
        rf"|{START}what\s+(?:an?|the|its?|they|we|you|this|that|other|nobody|no)\s+"
        r"(?:(?!\b(?:when|if|where|while|until|as)\b)[^.;:,!?|])*?\w\s+"
        r"(?:is|are|was|were|can't|cannot|may|must|will|has|stays|comes|goes|gets)\s+"
        rf"(?!for\b|like\b|about\b|used\b|called\b|to\b)\w+{STATEMENT}",
        "name the thing: unknown settings are refused",
        caught="What is unknown is refused. | What was mended leaves a test, which is kept."
        " | What a plugin may not read can't be forgotten."
        " | It starts; what is of the wrong type is refused",
        passed="What is the port? | What a crash means | What the appliance is for."
        " | What it does when it is full: reject, block. | what the courier stores",
    ),
    rule(
        "human-verb",
        r"\b(?:hear|hears|heard|believes?|believed|judged?|judges|speaks?\s+(?:of|for)|spoke|spoken|"
        r"knows?\s+of|knew\s+of|told)\b"
        r"|\btell(?:s|ing)?\b(?!\s+(?:(?:\w+\s+){0,4}(?:apart|from)|whether)\b)",
        "components return, publish, receive, trust, validate, refer to",
        caught="the writer tells the feed | every caller hears it | it believes the lock alone"
        " | the change it speaks of | a broker that it knows of | who wants to be told",
        passed="words that it can't tell apart | it can't tell them from text"
        " | you can't tell whether it ran | speaks HTTP"
        " | the appliance knows the key",
    ),
    rule(
        "is-asked",
        r"\b(?:is|are|was|were|be|been|being|gets)\s+(?:not\s+)?asked\b"
        r"(?!\s+(?:for\s+confirmation|to\s+confirm))"
        r"|\b(?:must|may|can|to|and)\s+be\s+asked\b",
        "is requested, is queried, is called",
        caught="the health is looked up when it is asked for | the broker can't be asked now",
        passed="you are asked for confirmation | a client requests the page",
    ),
    rule(
        "is-no",
        r"(?<!there )(?<!here )\b(?:is|are|was|were)\s+no\s+"
        r"(?!longer|more\b|other\b|better|worse|different|fewer|less\b|later|earlier|larger|smaller|"
        r"higher|lower|older|newer|such\b|use\b|need\b|one\b)\w+"
        r"|(?<!there )(?<!there  )\b(?:is|are|was|were)\s+none\b(?!\s+of)"
        r"|\bmember\s+of\s+no\b",
        "is not an X, isn't an X, there is no X",
        caught="that is no destination | a refused batch is no judgement"
        " | it looks like a token and is none | a member of no such mesh",
        passed="there is no such mesh | it is no longer held | there are none"
        " | none of them is open | that is not a destination",
    ),
    rule(
        "verb-as-noun",
        r"\ba\s+(?:\w+\s+)?look\b(?!\s+(?:and\s+feel|up))"
        r"|\b(?:an|all|of|the)\s+accepts?\b|\baccepts\s+and\s+acks\b"
        r"|\bthe\s+(?:asked|told|said)\b",
        "use the verb, or the field's noun: request, response, lookup",
        caught="a second look finds it | a look into the log | the limit of accepts"
        " | the asked and the told",
        passed="look into the log | it accepts sends | the lookup failed | the accepted sends",
    ),
    rule(
        "inverted",
        rf"{START}of\s+(?!course\b|them\b|which\b|whom\b|type\b)(?:\w+\s+)+?\w+"
        rf"|{START}(?:nor|neither|never|nowhere|seldom|rarely)\s+"
        r"(?:is|are|was|were|does|do|did|has|have|can|may|must|will)\s+(?!not\b)\w+",
        "begin with the subject: changes to a durable stream are journaled first",
        caught="Of a durable stream the journal hears first. | of one envelope's JSON"
        " | It has no port. Nor does it have a socket.",
        passed="Of course it starts. | Changes of a durable stream come first."
        " | bytes of one envelope",
    ),
    rule(
        "omission",
        r"\b(?:and|but)\s+nothing\s+(?:else|more)\b|\blikewise\b|\ball\s+else\b|\bnothing\s+but\b"
        r"|\band\s+no\s+more\b(?=\s*[.,;:)|]|\s*$)",
        "write the whole sentence",
        caught="it starts the appliance, and nothing else | rows of one view; likewise"
        " | all else goes to Falcon | it needs nothing but Python",
        passed="it starts only the appliance | nothing is stored | and no more rows are read",
    ),
    rule(
        "as-may-be",
        r"\b(?:as|than)\s+(?:(?:many|much|often|long|large|few|high|far)\s+(?:\w+\s+)?)?as\s+"
        r"(?:there|it|they|one)\s+(?:may|can)(?:\s+be)?\b(?!\s+\w)"
        r"|\bmore\s+than\s+there\s+(?:may|can)\b|\bas\s+there\s+may\s+be\b"
        r"|\bas\s+\w+\s+as\s+can\s+be\s+\w+",
        "the limit has been reached",
        caught="there are as many of them as there may be"
        " | the message was changed as often as can be counted"
        " | they hold as many bytes as they may",
        passed="as many as the limit allows | as long as it may take",
    ),
    rule(
        "metaphor",
        r"\b(?:houses?|storeys?|doors?|roofs?|joints?|desks?)\b|\bwalls?\b(?![- ](?:clock|time))"
        r"|\b(?:the|a|its|of|with|for|no|enough|more|in\s+the)\s+room\b(?!\s+for\b)",
        "project, layer, middleware, composition root, broker client, limit, space",
        caught="the rules of the house | the storeys of the tree | one door for all"
        " | the wall is at 70 lines | the room of the queue",
        passed="the wall clock | make room for it | indoor | a firewall | the warehouse",
    ),
    rule(
        "dead-and-buried",
        r"\bbur(?:y|ies|ied|ying)\b|\b(?:un)?buried\b|\bburials?\b"
        r"|\bdead\b(?![- ]?letter|[- ](?:code|process(?:es)?|clients?|connections?|peers?|links?|"
        r"sockets?|owners?|containers?|receivers?|end|lock|line)\b)"
        r"|\b(?:sends?|messages?|envelopes?|deliver(?:y|ies)|mails?)\s+(?:that\s+)?(?:die[sd]?)\b"
        r"|\bkills?\s+(?:a|the|every|this|that)\s+(?:send|message|delivery|envelope)\b",
        "becomes a dead letter, is dead-lettered; the status `dead` in backticks",
        caught="what is dead is buried | it kills a send | a send that died | dead ones too",
        passed="a dead letter | dead-lettered sends | the deadline | `dead` rows | a dead process",
    ),
    rule(
        "attempt",
        r"\b(?:an?|one|each|every|first|last|second|third|next|per|another|single)\s+try\b"
        r"|\b(?:more|many|few|all|between|of|two|three|\d+|these|those|no)\s+tries\b",
        "attempt",
        caught="the first try fails | after three tries | between tries",
        passed="try again | the client tries to connect | it tries the next address",
    ),
    rule(
        "lease-words",
        r"\b(?:give|gives|given|gave|giving)\s+(?:\w+\s+)?back\b|\bin\s+[\w']+\s+hands\b",
        "claim, lease, release",
        caught="the item is given back | it gives it back | in somebody's hands",
        passed="in turn | it releases the item | backlog",
    ),
    rule(
        "repeated-word",
        r"(?<![-'])\b(?-i:(?!(?:x+|that|had)\b)([a-z]+) \1)\b(?![-'])",
        "remove one of them, or reword",
        caught="the the port is taken | a commit that fails fails every write",
        passed="that that key is known | hand-in-hand handing | sender from From",
    ),
    rule(
        "archaic",
        r"\bmend(?:s|ed|ing)?\b|\banew\b|\bfor\s+ever\b|\bthereof\b|\bwhence\b|\blest\b|\bhence\b"
        r"|\bof\s+(?:ours|yours|theirs|mine)\b|\bnaught\b|\bbeside\s+(?:this|that|these)\b",
        "fix, again, forever, so; our X, your X",
        caught="it mends the file | the journal begins anew | kept for ever | code of yours",
        passed="it amends the file | recommended | forever | your code",
    ),
)

INSTEAD = re.compile(r"\*([^*]+)\*")


def vocabulary(glossary: str) -> Iterator[Rule]:
    """A rule for every word in the glossary's column "Instead of": in italics, with its endings."""
    for line in glossary.splitlines():
        columns = line.split("|")
        if not line.startswith("|"):
            continue
        use = columns[1].strip()
        for word in INSTEAD.findall(columns[-2]):
            pattern = rf"\b{re.escape(word)}(?:s|es|ed|d|ing)?\b".replace(r"\ ", r"\s+")
            yield Rule("glossary", pattern, use, (word,), ())
