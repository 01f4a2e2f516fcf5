"""Evaluating a model against what it was tuned from: perplexity, replayed prompts, public benchmarks."""
