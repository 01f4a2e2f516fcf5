"""Who did what, when and from where: written once, never changed."""
