"""Examples to start from: a GPT from nothing and LoRA, with values for each provider. Each runs as it is."""

from gpubloom.scripts.templates.catalogue import Template, TemplateFile, templates

__all__ = ["Template", "TemplateFile", "templates"]
