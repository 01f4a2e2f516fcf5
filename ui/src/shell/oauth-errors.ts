/** What a page says when a sign-in provider sends somebody back without success. */
const SENTENCES: Record<string, string> = {
  oauth_denied: "You cancelled the sign-in at the external provider. Try again, or sign in with your email address.",
  oauth_failed: "The sign-in at the external provider failed. Try again in a moment, or sign in with your email address.",
  oauth_email_unverified:
    "The external provider has not confirmed your email address. Confirm your address there, then try again.",
  oauth_link_required:
    "An account with this email address already exists. Sign in to it, then link the external account under Settings.",
  oauth_account_taken: "This external account is already linked to another user of this server.",
  signup_closed: "Sign-up is closed on this server. Ask the administrator for an invitation.",
};

/** The server sends a code, never a sentence: nobody can put their own words on this page through the address. */
export function oauthErrorSentence(code: string): string {
  return SENTENCES[code] ?? "The sign-in failed. Try again.";
}
