"""Made streams of texts: tickets by their words.

Hashing, scale and rates of the expert `words` were chosen on another seed. In each text some words
point to the class, with noise. Of `subjects` and `hours`, the label also depends on a number.
"""

import random

ROWS = 4000
FILL = (
    "please could you have a look at this as soon as possible thanks in advance the a we i our my "
    "is are since yesterday this morning on floor two three four in room building it does not "
    "after before update new old again still since monday regards hello dear team and or with for "
    "to of some every all user users colleague office desk today week"
).split()
THING = (
    "printer laptop screen mouse keyboard phone router server mailbox calendar account password "
    "licence browser scanner projector badge door invoice order contract form report website "
    "database backup folder file drive camera headset"
).split()
PROBLEM = (
    *("is slow", "does not start", "shows an error", "is broken", "is missing"),
    *("needs a new part", "cannot be opened", "was locked", "is very loud", "freezes"),
)
URGENT = (
    "outage down nobody production customers waiting blocked security breach immediately lost "
    "stopped smoke fire leak"
).split()
CALM = (
    "question wish idea request whenever info suggestion holiday training colour moving farewell"
).split()
TOPICS = {"billing": 0.4, "network": 0.25, "hardware": 0.15, "account": 0.12, "other": 0.08}


def named(letter, count):
    """Return made words of letters alone."""
    return [letter + "".join(chr(97 + int(c)) for c in f"{j:04d}") for j in range(count)]


def drawn(draw, words, count):
    """Return words, the first ones by far the most frequent."""
    places = (int(draw.paretovariate(0.7)) - 1 for _ in range(count))
    return [words[min(place, len(words) - 1)] for place in places]


def tickets(draw):
    """Return a ticket, 19 % of which are urgent, by at most two of its words."""
    urgent = draw.random() < 0.19
    text = [draw.choice(THING), draw.choice(PROBLEM)]
    for _ in range(2):
        if draw.random() < 0.6:
            text.append(draw.choice(URGENT if draw.random() < (0.75 if urgent else 0.2) else CALM))
    text += [draw.choice(FILL) for _ in range(draw.randint(2, 10))]
    draw.shuffle(text)
    row = {
        "hour": draw.randint(0, 23),
        "channel": draw.choice(["mail", "phone", "portal"]),
        "tier": draw.choice(["gold", "silver", "basic"]),
    }
    return row, " ".join(text).capitalize() + ".", "urgent" if urgent else "normal"


def queues(draw):
    """Return a ticket of one of five queues, by at most three words of its topic or another."""
    queue = draw.choices(list(TOPICS), TOPICS.values())[0]
    text = drawn(draw, named("w", 1500), draw.randint(6, 25))
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        topic = queue if draw.random() < 0.8 else draw.choice(list(TOPICS))
        text.append(f"{topic}{chr(97 + draw.randrange(25))}")
    draw.shuffle(text)
    return {"minutes": round(draw.lognormvariate(2, 1), 1)}, " ".join(text), queue


def hours(draw):
    """Return a subject of three to six words, and a sum of their weights and of a number."""
    fixed, words = random.Random(1), named("v", 300)
    weights = {word: fixed.gauss(0, 1) * (fixed.random() < 0.3) for word in words}
    text, x = drawn(draw, words, draw.randint(3, 6)), draw.gauss(0, 1)
    y = sum(weights[word] for word in text) + x + draw.gauss(0, 0.7)
    return {"x": round(x, 3)}, " ".join(text), round(y, 3)


def subjects(draw):
    """Return the same, and whether the sum is large."""
    row, text, y = hours(draw)
    return row, text, "late" if y > 0.8 else "in time"


STREAMS = {one.__name__: one for one in (tickets, queues, subjects, hours)}


def pairs(name):
    """Yield inputs and label of each row of a stream."""
    draw = random.Random(1)
    for row, text, y in (STREAMS[name](draw) for _ in range(ROWS)):
        yield row | {"text": text}, y
