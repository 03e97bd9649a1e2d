"""An everyday scene (who does what, where, when, how) and the English sentences that describe it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from sentdist.data.generated import vocabulary
from sentdist.data.seeded_order import digest_u64

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Agent:
    """names: (singular, plural) by wording; wider: the key of the agent that includes this one, "" at the top."""

    key: str
    names: tuple[tuple[str, str], ...]
    wider: str
    is_human: bool


@dataclass(frozen=True, kw_only=True)
class Activity:
    """phrases: infinitives that mean the same; the first may have a passive (object, participle).
    wider: key of the meaning that includes this one."""

    key: str
    phrases: tuple[str, ...]
    passive: tuple[str, str] | None
    wider: str
    places: tuple[str, ...]
    takes_manner: bool
    is_human: bool


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Keys into the vocabulary; None: not mentioned. look and garment belong to the agent; garment is (color, number of the garment)."""

    agent: str
    activity: str
    count: int = 0
    look: tuple[int, int] | None = None
    garment: tuple[int, int] | None = None
    place: str | None = None
    time: tuple[int, int] | None = None
    manner: tuple[int, int] | None = None


class Draw:
    """Random choices from one seed; only `random()`, whose sequence Python promises to keep, is drawn from."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(digest_u64(*seed))

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def one(self, items: Sequence[T]) -> T:
        return items[int(self._random.random() * len(items))]


@cache
def agents() -> dict[str, Agent]:
    """Return all agents by key (the singular of their first name), the wider ones included."""
    found = {}
    for names, other, wider, kind in _rows(vocabulary.AGENTS):
        forms = tuple(_pair(form) for form in [names, *other.split(";")])
        found[forms[0][0]] = Agent(key=forms[0][0], names=forms, wider=wider, is_human=kind == "human")
    for names, kind in _rows(vocabulary.WIDER_AGENTS):
        key = _pair(names)[0]
        wider = {"child": "person", "parent": "person", "bird": "animal"}.get(key, "")
        found[key] = Agent(key=key, names=(_pair(names),), wider=wider, is_human=kind == "human")
    return found


@cache
def activities() -> dict[str, Activity]:
    """Return all activities by key, the wider ones included; those of animals have keys of their own."""
    found: dict[str, Activity] = {}
    for is_human, table in ((True, vocabulary.ACTIVITIES), (False, vocabulary.BEAST_ACTIVITIES)):
        for verb, thing, other, wider, places, flags in _rows(table):
            phrase = f"{verb} {thing}".strip()
            key = phrase if is_human else f"{phrase} (animal)"
            said = (phrase, *(text.strip() for text in other.split(";")))
            passive = (thing, _participle(verb)) if thing and not thing.startswith(vocabulary.NO_PASSIVE) else None
            found[key] = Activity(
                key=key,
                phrases=said,
                passive=passive,
                wider=wider,
                places=tuple(places.split()),
                takes_manner="slow" in flags,
                is_human=is_human,
            )
            if wider not in found:
                found[wider] = Activity(
                    key=wider, phrases=(wider,), passive=None, wider="", places=(), takes_manner=False, is_human=is_human
                )
    return found


@cache
def places() -> dict[str, tuple[tuple[str, ...], str]]:
    """Return key → (phrases, key of the wider place); the wider places have themselves as wider."""
    found = {key: (_phrases(said), wider) for key, said, wider in _rows(vocabulary.PLACES)}
    return found | {key: (said, key) for key, said in vocabulary.WIDER_PLACES.items()}


@cache
def exclusive(table: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Return lines of meanings that exclude each other; a meaning is a tuple of phrases.
    table: TIMES, MANNERS, HUMAN_LOOKS or BEAST_LOOKS."""
    return tuple(tuple(_phrases(cell) for cell in row) for row in _rows(getattr(vocabulary, table)))


@cache
def garments() -> tuple[tuple[tuple[str, str], ...], ...]:
    """The table GARMENTS, each cell a pair of phrases."""
    return tuple(tuple(_pair(cell) for cell in row) for row in _rows(vocabulary.GARMENTS))


@cache
def split_of(agent: str, activity: str) -> str:
    """Return the split that owns all sentences in which this agent does this: 6 in 10 train, 2 dev, 2 test.

    Every sentence names an agent and an activity (perhaps the wider ones, which are owned like any other), so no two splits can share one.
    """
    return ("train", "train", "train", "train", "train", "train", "dev", "dev", "test", "test")[digest_u64("split", agent, activity) % 10]


@cache
def cast(split: str, is_human: bool) -> tuple[tuple[str, str], ...]:
    """Return the (agent, activity) pairs that a split owns, without the wider ones."""
    return tuple(
        (agent.key, activity.key)
        for agent in agents().values()
        for activity in activities().values()
        if agent.is_human == activity.is_human == is_human
        and len(agent.names) > 1
        and activity.places
        and split_of(agent.key, activity.key) == split
    )


def draw_scene(draw: Draw, split: str, *, detail: float) -> Scene:
    """Return a scene that `split` owns; each optional slot is filled with probability `detail`."""
    is_human = draw.chance(0.88)
    agent, activity = draw.one(cast(split, is_human))
    looks = exclusive("HUMAN_LOOKS" if is_human else "BEAST_LOOKS")
    scene = Scene(agent=agent, activity=activity, count=0 if draw.chance(0.65) else 1 + int(draw.one(range(len(vocabulary.COUNTS) - 1))))
    if draw.chance(detail * 0.7):
        scene = replace(scene, look=_meaning(draw, looks))
    if is_human and scene.look is None and draw.chance(detail * 0.6):
        scene = replace(scene, garment=(draw.one(range(len(vocabulary.COLORS))), draw.one(range(len(garments())))))
    if draw.chance(0.25 + detail * 0.7):
        scene = replace(scene, place=draw.one(activities()[activity].places))
    if draw.chance(detail * 0.5):
        scene = replace(scene, time=_meaning(draw, exclusive("TIMES")))
    if is_human and activities()[activity].takes_manner and draw.chance(detail * 0.5):
        scene = replace(scene, manner=_meaning(draw, exclusive("MANNERS")))
    return scene


def describe(scene: Scene, draw: Draw, *, negated: bool = False) -> str:
    """Return one of the sentences that say what the scene says."""
    activity = activities()[scene.activity]
    who = _who(scene, draw)
    one = scene.count == 0
    when = _said(draw, exclusive("TIMES"), scene.time)
    where = "" if scene.place is None else draw.one(places()[scene.place][0])
    how = _said(draw, exclusive("MANNERS"), scene.manner)
    tail = _join(how, where)
    form = draw.one(("plain", "plain", "simple", "passive", "there", "seen", "in front"))
    be = "is" if one else "are"
    if negated:
        who = f"no {who.removeprefix('an ').removeprefix('a ')}" if one else f"none of the {who}"
        return _sentence(_join(who, be, gerund(draw.one(activity.phrases)), tail, when))
    if form == "passive" and activity.passive:
        thing, participle = activity.passive
        return _sentence(_join(thing, "are" if _is_plural(thing) else "is", "being", participle, "by", who, tail, when))
    phrase = draw.one(activity.phrases)
    if form == "simple":
        return _sentence(_join(when and f"{when},", who, third_person(phrase) if one else _own(phrase, one), tail))
    doing = gerund(_own(phrase, one))
    if form == "there":
        return _sentence(_join("there", "is" if who.startswith(("a ", "an ")) else "are", who, doing, tail, when))
    if form == "seen":
        return _sentence(_join(who, "can be seen", doing, tail, when))
    if form == "in front" and (where or when):
        return _sentence(_join(f"{where or when},", who, be, doing, how, when if where else ""))
    return _sentence(_join(who, be, doing, tail, when))


def gerund(phrase: str) -> str:
    """Return the -ing form of an infinitive phrase: "ride a bike" → "riding a bike"."""
    verb, _, rest = phrase.partition(" ")
    if verb in vocabulary.DOUBLING:
        form = f"{verb}{verb[-1]}ing"
    elif verb == "lie":
        form = "lying"
    elif verb.endswith("e") and verb not in ("be", "see") and not verb.endswith("ee"):
        form = f"{verb[:-1]}ing"
    else:
        form = f"{verb}ing"
    return _join(form, rest)


def third_person(phrase: str) -> str:
    """Return the third person singular: "watch TV" → "watches TV"."""
    verb, _, rest = phrase.partition(" ")
    if verb in ("be", "have"):
        form = {"be": "is", "have": "has"}[verb]
    elif verb.endswith("y") and verb[-2] not in "aeou":
        form = f"{verb[:-1]}ies"
    else:
        form = f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{verb}s"
    return _join(form, rest)


def _who(scene: Scene, draw: Draw) -> str:
    agent = agents()[scene.agent]
    place = 0 if scene.count == 0 else 1
    looks = exclusive("HUMAN_LOOKS" if agent.is_human else "BEAST_LOOKS")
    name = draw.one(agent.names)[place]
    noun = _join(_said(draw, looks, scene.look), name)
    if scene.garment is not None:
        color, number = vocabulary.COLORS[scene.garment[0]], scene.garment[1]
        worn = f"{color} {draw.one(garments()[number])[place]}"
        noun = _join(noun, draw.one(("in", "wearing", "dressed in")), worn if place else f"{_article(worn)} {worn}")
    counting = draw.one(vocabulary.COUNTS[scene.count])
    return f"{_article(noun)} {noun}" if counting == "a" else f"{counting} {noun}"


def _participle(verb: str) -> str:
    head, _, rest = verb.partition(" ")
    regular = f"{head}d" if head.endswith("e") else f"{head}ed"
    return _join(vocabulary.PARTICIPLES.get(head, regular), rest)


def _own(phrase: str, one: bool) -> str:
    return phrase if one else phrase.replace("oneself", "themselves").replace(" its ", " their ")


def _is_plural(thing: str) -> bool:
    head = thing.split(" of ")[0]
    return head == "the teeth" or (head.endswith("s") and not head.endswith("ss"))


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" and not noun.startswith(("one", "uni", "eu")) else "a"


def _meaning(draw: Draw, lines: tuple[tuple[tuple[str, ...], ...], ...]) -> tuple[int, int]:
    line = draw.one(range(len(lines)))
    return line, draw.one(range(len(lines[line])))


def _said(draw: Draw, lines: tuple[tuple[tuple[str, ...], ...], ...], meaning: tuple[int, int] | None) -> str:
    return "" if meaning is None else draw.one(lines[meaning[0]][meaning[1]])


def _sentence(text: str) -> str:
    text = text.replace("oneself", "themselves")
    return f"{text[0].upper()}{text[1:]}."


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _phrases(cell: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in cell.split(";"))


def _pair(cell: str) -> tuple[str, str]:
    one, _, many = cell.partition(",")
    return one.strip(), many.strip()
