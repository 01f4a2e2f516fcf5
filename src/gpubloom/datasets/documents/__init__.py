"""Documents (PDF, Word, Markdown, HTML, text) become passages with their source, then questions."""
