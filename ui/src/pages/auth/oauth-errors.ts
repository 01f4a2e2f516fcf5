const SENTENCES: Record<string, string> = {
  oauth_denied: "You cancelled signing in with the other service. Try again, or use your email address.",
  oauth_failed: "Signing in with the other service did not work. Try again in a moment, or use your email address.",
  oauth_email_unverified:
    "The other service has not confirmed your email address. Confirm it there first, then try again.",
  signup_closed: "This server does not take new accounts. Ask its administrator for an invitation.",
};

/** The server sends a code, never a sentence: nobody can put their own words on this page through the address. */
export function oauthErrorSentence(code: string): string {
  return SENTENCES[code] ?? "Signing in did not work. Try again.";
}
