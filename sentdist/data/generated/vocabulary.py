"""The words of the generated everyday scenes, as tables that one can read."""

from __future__ import annotations

# singular, plural | other words for it (singular, plural; …) | the wider word | kind
AGENTS = """
man, men | guy, guys; gentleman, gentlemen | person | human
woman, women | lady, ladies | person | human
boy, boys | lad, lads | child | human
girl, girls | schoolgirl, schoolgirls | child | human
teenager, teenagers | adolescent, adolescents; teen, teens | person | human
student, students | pupil, pupils | person | human
teacher, teachers | schoolmaster, schoolmasters; educator, educators | person | human
cook, cooks | chef, chefs | person | human
doctor, doctors | physician, physicians | person | human
nurse, nurses | hospital attendant, hospital attendants | person | human
farmer, farmers | farm owner, farm owners | person | human
soldier, soldiers | army man, army men | person | human
police officer, police officers | cop, cops | person | human
firefighter, firefighters | fireman, firemen | person | human
musician, musicians | band member, band members | person | human
artist, artists | art maker, art makers | person | human
dancer, dancers | ballet performer, ballet performers | person | human
athlete, athletes | sportsman, sportsmen | person | human
tourist, tourists | sightseer, sightseers; traveler, travelers | person | human
worker, workers | laborer, laborers | person | human
carpenter, carpenters | woodworker, woodworkers | person | human
businessman, businessmen | executive, executives | person | human
waiter, waiters | restaurant server, restaurant servers | person | human
photographer, photographers | cameraman, cameramen | person | human
hiker, hikers | rambler, ramblers | person | human
gardener, gardeners | landscaper, landscapers | person | human
mechanic, mechanics | repairman, repairmen | person | human
sailor, sailors | seaman, seamen | person | human
grandfather, grandfathers | grandpa, grandpas | person | human
grandmother, grandmothers | grandma, grandmas | person | human
mother, mothers | mom, moms | parent | human
father, fathers | dad, dads | parent | human
scientist, scientists | researcher, researchers | person | human
lawyer, lawyers | attorney, attorneys | person | human
clown, clowns | circus comedian, circus comedians | person | human
neighbor, neighbors | person from next door, people from next door | person | human
dog, dogs | hound, hounds | animal | beast
cat, cats | feline, felines | animal | beast
horse, horses | stallion, stallions | animal | beast
monkey, monkeys | small ape, small apes | animal | beast
cow, cows | head of cattle, heads of cattle | animal | beast
rabbit, rabbits | bunny, bunnies | animal | beast
duck, ducks | mallard, mallards | bird | beast
"""

# Words that stand only for wider meanings: singular, plural | kind
WIDER_AGENTS = """
person, people | human
child, children | human
parent, parents | human
animal, animals | beast
bird, birds | beast
"""

# verb | object | other ways to say it, in the infinitive; … | the wider meaning | where (tags of PLACES) | flags: slow = takes a manner
ACTIVITIES = """
play | the guitar | strum an acoustic guitar; perform a tune on six strings | make music | home stage park street | slow
play | the piano | perform on a keyboard; press the black and white keys | make music | home stage school | slow
play | the violin | perform a fiddle piece; move a bow over four strings | make music | stage street school | slow
beat | a drum | keep the rhythm with two sticks | make music | stage street park | slow
sing | a song | perform a vocal number | make music | stage home street school church |
blow | a trumpet | perform on a brass horn | make music | stage street park |
chop | vegetables | cut up carrots and onions; slice some greens | prepare food | kitchen | slow
bake | a cake | make a sweet dessert in the oven | prepare food | kitchen | slow
fry | eggs | cook breakfast in a pan | prepare food | kitchen |
peel | potatoes | take the skin off some spuds | prepare food | kitchen porch | slow
grill | meat | barbecue some steaks | prepare food | yard park beach |
stir | a pot of soup | mix a boiling broth with a spoon | prepare food | kitchen | slow
eat | a sandwich | have a sub for lunch; munch on some filled bread | have a meal | kitchen restaurant park office beach | slow
eat | an apple | bite into a piece of fruit | have a meal | park kitchen school porch | slow
eat | noodles | slurp some ramen | have a meal | restaurant kitchen street | slow
drink | a cup of coffee | sip a hot espresso | enjoy a beverage | restaurant office kitchen porch | slow
drink | a glass of beer | sip some lager | enjoy a beverage | restaurant beach yard | slow
kick | a ball | play soccer; take part in a football match | do sports | field park yard beach |
throw | a baseball | pitch in a ballgame | do sports | field park yard |
shoot | a basketball | aim at the hoop | do sports | field gym yard |
hit | a tennis ball | swing a racket at the net | do sports | field park gym |
lift | weights | pump iron; raise heavy dumbbells | do sports | gym home | slow
ride | a bicycle | pedal along on two wheels; travel by bike | get about | street park road | slow
drive | a truck | steer a large vehicle; sit behind the wheel of a lorry | get about | road street farm | slow
ride | a skateboard | roll along on a deck | get about | street park | slow
row | a boat | paddle over the water; pull the oars | get about | lake river | slow
run | | jog at a steady pace; sprint along | move on foot | park street field beach road forest |
walk | | stroll along; take a stroll | move on foot | park street beach road forest field | slow
climb | a rock | scale a cliff; pull oneself up a steep wall | move on foot | mountain forest beach | slow
dance | | move to the beat; sway to the rhythm | perform for others | stage street home gym |
juggle | colored balls | keep several balls in the air | perform for others | street stage park | slow
tell | a joke | make the crowd laugh | perform for others | stage restaurant office home |
read | a book | study a novel; look through a thick volume | take in some text | home library park school beach train | slow
read | a newspaper | look through the daily press; study the headlines | take in some text | home park restaurant train office | slow
write | a letter | put a message on paper; pen a note | work with words | home office library school | slow
type | a report | enter text on a keypad | work with words | office library home | slow
paint | a picture | create a work of art on canvas; put colors on a canvas | make art | home park school studio | slow
draw | a portrait | sketch a face with a pencil | make art | studio street school | slow
carve | a wooden figure | shape a statue from a log | make art | studio yard porch | slow
take | a photograph | snap a shot; capture an image with a camera | make a record | street park beach mountain museum stage |
film | a video | shoot a clip; record some footage | make a record | street park beach stage |
clean | the windows | wipe the glass panes | do chores | home office shop | slow
wash | the dishes | scrub dirty plates in the sink | do chores | kitchen restaurant | slow
sweep | the floor | use a broom | do chores | home shop kitchen garage | slow
iron | a shirt | press some clothes | do chores | home | slow
hang | the laundry | put wet clothes on a line | do chores | yard porch | slow
mow | the lawn | cut the grass | do yard work | yard park | slow
water | the flowers | give the plants a drink; spray a hose on some blossoms | do yard work | yard park porch | slow
plant | a tree | put a sapling in the ground | do yard work | yard park farm forest | slow
rake | the leaves | gather foliage into a heap | do yard work | yard park | slow
pick | grapes | gather fruit from the vines | do farm work | farm field | slow
milk | a goat | fill a pail at the udder | do farm work | farm | slow
dig | a hole | shovel out the soil; make a pit with a spade | do heavy labor | yard beach field road | slow
build | a wall | lay bricks; stack up stones with mortar | do heavy labor | yard street farm | slow
carry | heavy boxes | haul some large crates | do heavy labor | street garage shop office | slow
saw | a plank | cut a board in two | do heavy labor | garage yard farm | slow
repair | a car | fix an automobile; work under the hood of a sedan | mend a thing | garage street road | slow
fix | a watch | put a timepiece back in order | mend a thing | shop studio home | slow
sew | a dress | stitch some fabric together | mend a thing | home studio shop | slow
buy | fruit | pay for some oranges and bananas | spend money | market shop street |
try on | a pair of shoes | see whether new footwear fits | spend money | shop market |
sell | bread | offer fresh loaves to customers | do business | market shop street |
count | money | add up bills and coins | do business | office shop market | slow
sign | a contract | put a name under an agreement | do business | office | slow
talk | on the phone | speak into a mobile; make a call | communicate | street office home train park |
give | a speech | address an audience; talk to a crowd | communicate | stage school church office | slow
argue | with a colleague | quarrel with a workmate | communicate | office street shop |
wave | a flag | swing a banner | communicate | street stage field |
play | chess | move a knight on a board of squares | enjoy a game | park home library school | slow
play | cards | deal a hand of poker | enjoy a game | home train restaurant porch |
fly | a kite | hold a string in the wind | enjoy a game | beach field park |
build | a sandcastle | shape towers out of wet sand | enjoy a game | beach | slow
throw | snowballs | have a snow fight | enjoy a game | yard park mountain street |
sleep | | take a nap; doze with closed eyes | rest | home train park beach library |
sit | on a bench | have a seat on a wooden bench | rest | park street porch museum |
lie | in a hammock | swing gently in a net between two trees | rest | yard beach |
watch | television | stare at a TV show; follow a program on a screen | look at something | home restaurant gym |
watch | the birds | observe sparrows through binoculars | look at something | park forest lake yard |
admire | a statue | look up at a sculpture | look at something | museum park street church |
swim | | do laps; move through the water | spend time in the water | lake pool river beach | slow
dive | from a board | leap headfirst from a platform | spend time in the water | pool lake |
surf | a wave | balance on a board over the sea | spend time in the water | beach |
catch | a fish | reel in a trout; pull a salmon out | get food from nature | lake river beach |
gather | mushrooms | look for edible fungi | get food from nature | forest | slow
feed | the chickens | throw grain to the hens | look after others | farm yard |
walk | a puppy | lead a small pet on a leash | look after others | park street beach | slow
comfort | a baby | calm a crying infant | look after others | home hospital train |
examine | a patient | check a sick man's health | look after others | hospital | slow
bandage | an arm | wrap a wounded limb | look after others | hospital field | slow
teach | a class | explain a lesson | share knowledge | school | slow
solve | a math problem | work out an equation | use the brain | school library office home | slow
use | a laptop | work on a portable computer | use the brain | office home library train restaurant |
look | through a microscope | study tiny samples under a lens | use the brain | school hospital studio | slow
pray | | speak to God; kneel with folded hands | take part in worship | church home | slow
light | a candle | set fire to a wick | take part in worship | church home porch |
pack | a suitcase | fill a bag for a trip | get ready for a journey | home hotel | slow
wait | for a bus | stand at the stop until public transport comes | get ready for a journey | street road |
board | a train | step into a railway car | get ready for a journey | station |
put up | a tent | set up camp; raise a canvas shelter | get ready for a journey | forest mountain beach field | slow
put on | a coat | get into warm clothes | get ready for a journey | home hotel restaurant | slow
brush | the teeth | clean the mouth with some paste | do personal care | home hotel | slow
comb | the hair | tidy a head of curls | do personal care | home hotel studio | slow
"""

BEAST_ACTIVITIES = """
chase | a ball | go after a bouncing toy | have fun | yard park beach field |
jump | over a fence | leap across a barrier | have fun | farm yard field |
roll | in the mud | turn over in wet dirt | have fun | farm yard field forest |
run | | race along; dash about | keep moving | park beach field farm forest road |
cross | a stream | wade to the other bank | keep moving | forest river farm | slow
climb | a tree | scramble up a trunk | keep moving | forest yard park |
sleep | | take a nap; lie curled up | get some rest | home farm yard park |
lie | on a blanket | rest on a woolen cover | get some rest | home porch yard |
drink | water | lap from a puddle; quench its thirst | take nourishment | farm lake river yard | slow
eat | grass | graze; munch on green blades | take nourishment | farm field park | slow
eat | a carrot | gnaw at an orange root | take nourishment | farm yard home | slow
watch | a mouse | stare at a small rodent | pay attention to something | home farm yard |
follow | a child | go behind a toddler | pay attention to something | street park home beach |
carry | a stick | hold a branch in its mouth | fetch a thing | park forest beach yard |
pull | a cart | draw a wagon | do work for people | farm road street | slow
swim | | paddle about | get wet | lake river pool beach | slow
shake | off water | spray drops from wet fur | get wet | lake beach yard |
"""

# name | phrase; other phrases | wider
PLACES = """
home | in the living room; in the lounge | indoors
kitchen | in the kitchen; by the stove | indoors
porch | on the porch; on the front steps of the house | outdoors
yard | in the backyard; in the garden behind the house | outdoors
park | in the park; in a public garden | outdoors
street | on the street; on the sidewalk; in the middle of town | outdoors
road | on a country road; on a rural lane | outdoors
stage | on a stage; in front of an audience | indoors
school | in a classroom; at school | indoors
library | in the library; between the bookshelves | indoors
office | in an office; at work | indoors
shop | in a shop; in a store | indoors
market | at the market; among the stalls | outdoors
restaurant | in a restaurant; in a diner | indoors
gym | in the gym; in a sports hall | indoors
field | on a playing field; in a meadow | outdoors
beach | on the beach; at the seaside | outdoors
lake | at the lake; in the waters of a lake | outdoors
river | in the river; in a flowing creek | outdoors
pool | in the swimming pool; in a public bath | indoors
mountain | in the mountains; high up on a peak | outdoors
forest | in the forest; in the woods | outdoors
farm | on a farm; on a ranch | outdoors
garage | in a garage; in a workshop for cars | indoors
studio | in a studio; in an atelier | indoors
museum | in a museum; at an exhibition | indoors
church | in a church; in a chapel | indoors
hospital | in a hospital; at a clinic | indoors
train | on a train; in a railway carriage | indoors
hotel | in a hotel room; at an inn | indoors
station | at the station; on the platform | indoors
"""

WIDER_PLACES = {"indoors": ("indoors", "inside a building"), "outdoors": ("outdoors", "outside", "in the open air")}

# Times of one line exclude each other; the phrases of one time mean the same.
TIMES = """
in the morning; early in the day | at noon; in the middle of the day | in the evening; at the end of the day | at night; after dark; late at night
on a sunny day; in bright sunshine; under a clear sky | on a rainy day; in the rain; in wet weather | on a foggy day; in thick fog
in winter; during the cold season | in summer; during the hot season | in autumn; in the fall | in spring; when the first flowers bloom
on Monday; at the start of the week | on Sunday; at the weekend
"""

# Manners of one line exclude each other.
MANNERS = """
slowly; at a slow pace; without any hurry | quickly; at high speed; in a hurry
carefully; with great care | carelessly; without paying attention
alone; without any company | together with friends; in the company of friends
quietly; without making a sound | noisily; with a lot of noise
"""

# Words for a look that exclude each other, by line: word; other words | opposite; other words
HUMAN_LOOKS = """
young; youthful | old; elderly; aged
tall; very tall | short; small-bodied
happy; cheerful; smiling | sad; unhappy; gloomy
tired; exhausted; weary | lively; energetic; wide-awake
thin; slim; skinny | heavy; stout; overweight
bald; hairless | long-haired; shaggy-haired
well-dressed; elegant | ragged; shabby
"""
BEAST_LOOKS = """
small; little; tiny | large; big; huge
brown; chestnut-colored | white; snow-white | black; jet-black | spotted; speckled
wet; soaked | dry; clean and dry
"""
COLORS = ("red", "blue", "green", "yellow", "black", "white", "orange", "purple", "gray", "pink")
GARMENTS = """
jacket, jackets | coat, coats
shirt, shirts | top, tops
hat, hats | cap, caps
sweater, sweaters | pullover, pullovers
scarf, scarves | neck warmer, neck warmers
apron, aprons | smock, smocks
"""
# Counts that exclude each other; of the phrases of one count each means the same.
COUNTS = (("a",), ("two", "a pair of"), ("three", "a trio of"), ("five",), ("several", "a group of", "a handful of"))

DOUBLING = frozenset(
    (
        "run",
        "swim",
        "cut",
        "sit",
        "chop",
        "jog",
        "dig",
        "put",
        "set",
        "get",
        "step",
        "hit",
        "scrub",
        "strum",
        "snap",
        "sip",
        "lap",
        "stir",
        "pen",
        "wrap",
    )
)
PARTICIPLES = {
    "beat": "beaten", "blow": "blown", "build": "built", "buy": "bought", "catch": "caught", "draw": "drawn", "drink": "drunk", "drive": "driven",
    "eat": "eaten", "feed": "fed", "fly": "flown", "give": "given", "hang": "hung", "hit": "hit", "light": "lit", "put": "put", "read": "read",
    "ride": "ridden", "saw": "sawn", "sell": "sold", "sew": "sewn", "shoot": "shot", "sing": "sung", "stir": "stirred", "sweep": "swept", "take": "taken",
    "teach": "taught", "tell": "told", "throw": "thrown", "try": "tried", "write": "written", "dig": "dug", "chop": "chopped", "carry": "carried",
    "fry": "fried",
}  # fmt: skip
NO_PASSIVE = ("on ", "in ", "with ", "for ", "from ", "through ", "over ", "off ")
