import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";

/** A secret from the part of the address after "#", which browsers never send to a server. */
export function fragmentValue(fragment: string, name: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, "")).get(name) || null;
}

/** Reads a secret from the address once, then takes it out, so that it stays in neither the history nor a screenshot. */
export function useFragment(name: string): string | null {
  const [value] = useState(() => fragmentValue(window.location.hash, name));
  const navigate = useNavigate();
  useEffect(() => {
    if (value !== null) void navigate({ to: ".", search: true, hash: "", replace: true });
  }, [value, navigate]);
  return value;
}
