"""Serving a model: found on disk, loaded once, answering token by token over HTTP on loopback.

    found = find_model(path)                      # resolved_model.py: which folder, which base, which run
    models = ModelRegistry.load(found, compute)   # model_registry.py: base and tuned model, sharing weights
    formatter = PromptFormatter.of(found)         # prompt_formatter.py: tokenizer, chat template, stop tokens
    for text in Answer(models.get("tuned"), formatter, formatter.chat(messages), Wanted(max_tokens=64)): ...

`http_server.py` speaks the OpenAI protocol over these; `gpubloom.engine.tasks.serve` is the process.
"""
