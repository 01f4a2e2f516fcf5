"""Profile pictures: uploaded, or taken over from a sign-in provider."""
