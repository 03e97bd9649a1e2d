"""Sentences about two scenes: entailment, contradiction, and how similar the two are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sentdist.data.generated import scenes, vocabulary
from sentdist.data.generated.scenes import Draw, Scene

# What a slot weighs among the details of a pair, when at least one of the two scenes fills it.
DETAIL_WEIGHTS = {"place": 3.0, "time": 2.0, "manner": 2.0, "look": 1.5, "garment": 1.5, "count": 1.0}
UNSAID = 0.6  # likeness of a detail that only one of the two mentions
WIDER = 0.75  # likeness of a word and the wider word that includes it
KIN = 0.4  # likeness of two words with the same wider word: playing the guitar, playing the piano

SceneChange = Callable[[Scene, Draw, str], Scene | None]


def weakened(scene: Scene, draw: Draw, split: str) -> Scene:
    """Return a scene that follows from `scene`: details left out, words replaced by wider ones; never a scene of another split."""
    weaker = scene
    for slot in ("look", "garment", "time", "manner", "place"):
        if getattr(weaker, slot) is not None and draw.chance(0.5):
            weaker = with_slot(weaker, slot, None)
    if weaker.place is not None and draw.chance(0.25):
        weaker = replace(weaker, place=scenes.places()[weaker.place][1])
    if draw.chance(0.4):
        weaker = with_wider_agent(weaker, draw, split) or weaker
    if draw.chance(0.3):
        weaker = with_wider_activity(weaker, draw, split) or weaker
    return weaker


def contradicted(scene: Scene, draw: Draw, split: str) -> tuple[Scene, bool]:
    """Return a scene that cannot be true when `scene` is, and whether it is to be negated; some details are left out as in `weakened`."""
    base = scene
    for slot in ("look", "garment", "time", "manner"):
        if getattr(base, slot) is not None and draw.chance(0.4):
            base = with_slot(base, slot, None)
    if draw.chance(0.08):
        return replace(base, look=None, garment=None, time=None, manner=None), True
    changes = (*[with_other_activity] * 4, *[with_sibling_activity] * 3, *[with_other_agent] * 3, with_other_place, with_other_detail)
    while True:
        changed = draw.one(changes)(base, draw, split)
        if changed is not None and changed != scene:
            return changed, False
        base = scene if draw.chance(0.5) else base


def graded(draw: Draw, split: str) -> tuple[Scene, Scene]:
    """Return two scenes of a split that share much, some or nothing; the kinds of pair are equally frequent."""
    scene = scenes.draw_scene(draw, split, detail=0.6)
    plan: Sequence[SceneChange] = draw.one(
        (
            (),
            (),
            (drop_details,),
            (with_wider_activity,),
            (drop_details, with_wider_agent),
            (with_other_detail,),
            (with_other_place,),
            (with_other_place, with_other_detail),
            (with_sibling_activity,),
            (with_sibling_activity, drop_details),
            (with_sibling_agent,),
            (with_other_agent,),
            (with_other_agent, with_other_place),
            (with_other_activity,),
            (with_other_activity, drop_details),
            (with_other_activity, with_other_agent),
            (with_other_activity, with_other_agent),
            (with_other_activity, with_other_agent, with_other_place),
        )
    )
    other = scene
    for change in plan:
        other = change(other, draw, split) or other
    if draw.chance(0.08):
        other = scenes.draw_scene(draw, split, detail=0.6)
    return (scene, other) if draw.chance(0.5) else (other, scene)


def likeness(one: Scene, other: Scene) -> float:
    """Return how alike two scenes are, 0 to 5 in steps of 0.2, from their slots alone: wording does not count.

    Who and what give the core, agent/6 + activity/3 + agent · activity/2; the shares of equal details scale it between 40 % and 100 %.
    """
    agent = _key_likeness(one.agent, other.agent, {key: value.wider for key, value in scenes.agents().items()})
    activity = _key_likeness(one.activity, other.activity, {key: value.wider for key, value in scenes.activities().items()})
    core = agent / 6 + activity / 3 + agent * activity / 2
    total = score = 0.0
    for slot, weight in DETAIL_WEIGHTS.items():
        value = _detail_likeness(slot, getattr(one, slot), getattr(other, slot))
        if value is not None:
            total += weight
            score += weight * value
    return round(round(25 * core * (0.4 + 0.6 * score / total)) / 5, 1)


# The functions below change one slot of a scene. None: there is nothing to take its place, or what comes out is a scene of another split.


def with_wider_agent(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the agent by what it is a kind of: a boy by a child."""
    wider = scenes.agents()[scene.agent].wider
    return _owned(replace(scene, agent=wider), split) if wider else None


def with_wider_activity(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the activity by what it is a kind of."""
    wider = scenes.activities()[scene.activity].wider
    return _owned(replace(scene, activity=wider), split) if wider else None


def with_sibling_agent(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the agent by another one of the same kind."""
    own = scenes.agents()[scene.agent]
    siblings = [
        agent.key
        for agent in scenes.agents().values()
        if agent.wider == own.wider and agent.key != own.key and agent.is_human == own.is_human
    ]
    return _with_agent(scene, siblings, draw, split)


def with_other_agent(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the agent by any other one that is human, or not, as it is."""
    own = scenes.agents()[scene.agent]
    others = [
        agent.key for agent in scenes.agents().values() if agent.is_human == own.is_human and len(agent.names) > 1 and agent.key != own.key
    ]
    return _with_agent(scene, others, draw, split)


def with_sibling_activity(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the activity by another one of the same kind."""
    own = scenes.activities()[scene.activity]
    siblings = [
        activity.key for activity in scenes.activities().values() if own.wider and activity.wider == own.wider and activity.key != own.key
    ]
    return _with_activity(scene, siblings, draw, split)


def with_other_activity(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the activity by one of another kind that goes on in the same place."""
    own = scenes.activities()[scene.activity]
    others = [
        activity.key
        for activity in scenes.activities().values()
        if activity.is_human == own.is_human
        and activity.places
        and activity.wider not in (own.wider, own.key)
        and (scene.place is None or scene.place in activity.places)
    ]
    return _with_activity(scene, others, draw, split)


def with_other_place(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace the place by one that excludes it; prefer the places where such things are done."""
    if scene.place is None:
        return None
    usual = [place for place in scenes.activities()[scene.activity].places if place != scene.place]
    wider = scenes.places()[scene.place][1]
    others = usual or [key for key, (_, kind) in scenes.places().items() if kind not in (wider, key)]
    return replace(scene, place=draw.one(others))


def with_other_detail(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Replace one of the details that are there by its opposite."""
    slots = [slot for slot in ("look", "garment", "time", "manner", "count") if getattr(scene, slot) is not None]
    slot = draw.one(slots)
    if slot == "count":
        return replace(scene, count=draw.one([count for count in range(len(vocabulary.COUNTS)) if count != scene.count]))
    if slot == "garment" and scene.garment is not None:
        colors = [color for color in range(len(vocabulary.COLORS)) if color != scene.garment[0]]
        return replace(scene, garment=(draw.one(colors), scene.garment[1]))
    line, meaning = getattr(scene, slot)
    looks = "HUMAN_LOOKS" if scenes.agents()[scene.agent].is_human else "BEAST_LOOKS"
    rest = [
        other
        for other in range(len(scenes.exclusive({"look": looks, "time": "TIMES", "manner": "MANNERS"}[slot])[line]))
        if other != meaning
    ]
    return with_slot(scene, slot, (line, draw.one(rest)))


def drop_details(scene: Scene, draw: Draw, split: str) -> Scene | None:
    """Leave every detail out with even odds."""
    for slot in ("look", "garment", "place", "time", "manner"):
        if draw.chance(0.5):
            scene = with_slot(scene, slot, None)
    return scene


def with_slot(scene: Scene, slot: str, value: tuple[int, int] | None) -> Scene:
    """Return the scene with one of its optional slots filled or emptied."""
    changed: dict[str, Any] = {slot: value}
    return replace(scene, **changed)


def _owned(scene: Scene, split: str) -> Scene | None:
    return scene if scenes.split_of(scene.agent, scene.activity) == split else None


def _with_agent(scene: Scene, keys: Sequence[str], draw: Draw, split: str) -> Scene | None:
    owned = [key for key in keys if scenes.split_of(key, scene.activity) == split]
    return replace(scene, agent=draw.one(owned)) if owned else None


def _with_activity(scene: Scene, keys: Sequence[str], draw: Draw, split: str) -> Scene | None:
    owned = [key for key in keys if scenes.split_of(scene.agent, key) == split]
    return replace(scene, activity=draw.one(owned)) if owned else None


def _key_likeness(one: str, other: str, wider: dict[str, str]) -> float:
    if one == other:
        return 1.0
    if other in (wider[one], wider.get(wider[one])) or one in (wider[other], wider.get(wider[other])):
        return WIDER
    are_siblings = wider[one] == wider[other] != "" and wider[one] != "person"  # most people are alike only in being people
    return KIN if are_siblings else 0.0


def _detail_likeness(slot: str, one: object, other: object) -> float | None:
    if one is None and other is None:
        return None
    if one is None or other is None:
        return UNSAID
    if one == other:
        return 1.0
    if slot == "place" and (scenes.places()[str(one)][1] == other or scenes.places()[str(other)][1] == one):
        return WIDER
    if slot == "garment" and isinstance(one, tuple) and isinstance(other, tuple) and one[1] == other[1]:
        return KIN / 2
    return 0.0
