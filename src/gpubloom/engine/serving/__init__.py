"""Talking to a model: found on disk, held in memory once, answering token by token over HTTP on loopback.

    found = find_model(path)               # found.py: which folder, which base, which run
    voices = Voices.load(found, compute)   # voices.py: base and tuned over one set of weights where possible
    speech = Speech.of(found)              # speech.py: tokenizer, chat template, where an answer ends
    for text in Answer(voices.get("tuned"), speech, speech.chat(messages), Wanted(max_tokens=64)): ...

`listening.py` speaks the OpenAI protocol over these; `gpubloom.engine.tasks.serve` is the process.
"""
