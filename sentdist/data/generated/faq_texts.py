"""Questions of a household shop's customers, in many wordings, with the answers that the shop gives."""

from __future__ import annotations

from sentdist.data.generated.scenes import Draw
from sentdist.data.seeded_order import digest_u64

# kind of thing | thing; other words
THINGS = """
furniture | sofa; couch
furniture | wardrobe; clothes cupboard
furniture | bookcase; set of bookshelves
household appliances | washing machine; clothes washer
household appliances | refrigerator; fridge
household appliances | vacuum cleaner; hoover
electronics | laptop; notebook computer
electronics | mobile phone; smartphone
electronics | television; TV set
sports equipment | bicycle; bike
sports equipment | treadmill; running machine
sports equipment | camping tent; outdoor shelter
garden equipment | lawn mower; grass cutter
garden equipment | wheelbarrow; garden cart
clothing | winter coat; warm jacket
clothing | pair of boots; set of sturdy shoes
"""

# intent | question; other wordings | answer about one thing | answer about a whole kind. {x}: a thing, {k}: its kind, {n}: its own number
INTENTS = """
return | How do I return {x}?; Can I send {x} back if I do not like it?; I changed my mind about {x}, what now?; What are the rules for giving back {x}? | You have {n} days to bring {x} to any branch or post it to us; we refund the price once it has arrived unused. | All {k} may be handed in again within a month, as long as the receipt is there.
delivery time | How long does delivery of {x} take?; When will {x} arrive at my house?; How many days must I wait for {x}?; I ordered {x}, when does it come? | We ship {x} from our central warehouse; expect it at your door about {n} working days after the order. | For {k} the carrier calls you on the day before and agrees on an hour.
delivery cost | What does shipping of {x} cost?; Is there a fee for bringing {x} to my home?; How much do I pay for the transport of {x}?; Do you deliver {x} free of charge? | Bringing {x} to your address adds {n} euros to the bill, whatever the distance. | Orders of {k} above two hundred euros travel at our expense.
warranty | What guarantee do I get on {x}?; For how long is {x} covered if it fails?; Who pays when {x} breaks after a year?; Is a defect of {x} covered? | Should {x} fail within {n} months of purchase, we mend or replace it without charge. | By law, faults that {k} had from the beginning are our responsibility for two years.
damaged | My new {x} came broken, what should I do?; {x} has scratches out of the box, whom do I tell?; What if {x} is harmed on the way?; The parcel with {x} was crushed | Send a photo of {x} and of its packaging within {n} days and we dispatch another one at once. | Please refuse parcels with {k} whose wrapping is torn, and have the driver note it.
cancel | Can I still cancel my order of {x}?; How do I withdraw an order for {x}?; I ordered {x} by mistake, can you stop it?; Please undo my purchase of {x} | Until it leaves the warehouse, usually {n} hours after you paid, an order of {x} can be stopped in your account with one click. | Contracts for {k} made to measure are binding from the first hour.
instalments | Can I pay for {x} in instalments?; Is it possible to spread the price of {x} over months?; Do you offer credit for {x}?; May I buy {x} now and pay later? | The price of {x} can be split into {n} equal monthly payments without interest. | Financing of {k} goes through our partner bank, which asks for proof of income.
clean | How should I clean {x}?; What is the best way to get stains off {x}?; Which soap is safe for {x}?; How do I keep {x} looking new? | Wipe {x} with a damp cloth and {n} drops of mild detergent, then let it dry away from sunlight. | Strong bleach ruins the surface of most {k}; test any product on a hidden spot.
assemble | How do I put {x} together?; Is {x} hard to assemble?; Which tools do I need to set up {x}?; Does somebody install {x} for me? | Setting up {x} takes one person {n} minutes; the leaflet in the box shows each step. | Our fitters come to your home and make {k} ready for use if you book them with the order.
spare parts | Where do I get spare parts for {x}?; Can I order a missing screw for {x}?; A piece of {x} is lost, can you replace it?; Do you sell single components of {x}? | Every component of {x} has a code of {n} characters in the manual; type it into our parts desk to order it. | Replacement pieces for {k} stay in stock for ten years after the last sale.
pick up | Can I collect {x} at a store?; Is {x} available for pick-up today?; I would rather fetch {x} myself; Which branch keeps {x} in stock? | Reserve {x} online and it lies ready at counter {n} of the branch you choose after two hours. | To take {k} home yourself, bring a vehicle that is large enough and your order number.
disposal | Will you take away my old {x}?; How do I get rid of a used {x}?; Where can I recycle {x}?; What do I do with {x} that no longer works? | When we bring the new one, the crew carries your worn-out {x} to recycling for {n} euros. | Towns collect discarded {k} on fixed dates; the calendar hangs in the town hall.
"""
OPENINGS = (
    "",
    "",
    "",
    "Hello, a quick question. ",
    "I live abroad. ",
    "My birthday is next week. ",
    "I am a new customer. ",
    "I have had trouble before. ",
)


def faq_rows(seed: object) -> tuple[list[dict[str, str]], list[dict[str, str]], list[dict[str, object]]]:
    """Return documents (document_id, question, answer), queries (query_id, query) and judgements (query_id, document_id, relevance).

    A query is about one intent and one thing: relevance 2 for the answer to just that, 1 for what is said of all things of its kind.
    """
    draw = Draw(seed, "faq")
    documents: list[dict[str, str]] = []
    queries: list[dict[str, str]] = []
    judgements: list[dict[str, object]] = []
    things = [line.split("|") for line in THINGS.strip().splitlines()]
    asked: set[str] = set()
    for intent_line in INTENTS.strip().splitlines():
        intent, questions, answer, general = (cell.strip() for cell in intent_line.split("|"))
        wordings = [wording.strip() for wording in questions.split(";")]
        for kind in dict.fromkeys(line[0].strip() for line in things):
            documents.append(
                {"document_id": f"{intent}/{kind}", "question": _fill(wordings[0], kind, kind), "answer": _fill(general, kind, kind)}
            )
        for kind, names in ((line[0].strip(), [name.strip() for name in line[1].split(";")]) for line in things):
            document = f"{intent}/{names[0]}"
            number = str(3 + digest_u64(seed, document) % 26)
            documents.append(
                {
                    "document_id": document,
                    "question": _fill(wordings[0], names[0], kind),
                    "answer": _fill(answer, draw.one(names), kind, number),
                }
            )
            for wording in wordings:
                query = draw.one(OPENINGS) + _fill(wording, draw.one(names), kind)
                if query in asked:
                    continue
                asked.add(query)
                query_id = f"q{len(queries)}"
                queries.append({"query_id": query_id, "query": query})
                judgements.append({"query_id": query_id, "document_id": document, "relevance": 2})
                judgements.append({"query_id": query_id, "document_id": f"{intent}/{kind}", "relevance": 1})
    return documents, queries, judgements


def _fill(text: str, thing: str, kind: str, number: str = "") -> str:
    """Put the thing in, with the article that the text leaves room for."""
    article = "an " if thing[0] in "aeiou" else "a "
    named = thing if thing == kind else f"{article}{thing}"
    for owner in ("My new ", "my old ", "worn-out ", "a used "):
        text = text.replace(f"{owner}{{x}}", f"{owner}{thing}")
    text = text.replace("{x}", named).replace("{k}", kind).replace("{n}", number)
    return f"{text[0].upper()}{text[1:]}"
