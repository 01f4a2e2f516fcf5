import { useLocation, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";

/** A secret from the part of the address after "#", which browsers never send to a server. */
export function fragmentValue(fragment: string, name: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get(name) || null;
}

/** Reads a secret from the address, then takes it out, so that it stays in neither the history nor a screenshot. */
export function useFragment(name: string): string | null {
  const value = fragmentValue(useLocation().hash, name);
  const [kept, setKept] = useState(value);
  // A link pasted into the address of a page that is already open changes only the fragment.
  if (value !== null && value !== kept) setKept(value);

  const navigate = useNavigate();
  const present = value !== null;
  useEffect(() => {
    if (present) void navigate({ to: ".", search: true, hash: "", replace: true });
  }, [present, navigate]);
  return kept;
}
