"""Google Colab: sessions of the official command, and notebooks that a person opens."""
