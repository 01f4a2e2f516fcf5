/** What the server asks of names, addresses and passwords, said before sending. The server has the last word. */
import { z } from "./zod";

export const PASSWORD_HELP = "10 to 128 characters. A few words in a row make a good one.";

export const personName = z
  .string()
  .trim()
  .min(1, "Enter your name.")
  .max(120, "A name can have at most 120 characters.");

export const emailAddress = z
  .string()
  .trim()
  .min(1, "Enter your email address.")
  .max(254, "An email address can have at most 254 characters.")
  .regex(/^[^\s@]+@[^\s@]+$/, "This does not look like an email address.");

export const newPassword = z
  .string()
  .min(10, "A password needs at least 10 characters.")
  .max(128, "A password can have at most 128 characters.");

/** A password that exists already: its rules may be older than today's. */
export const existingPassword = z.string().min(1, "Enter your password.");
