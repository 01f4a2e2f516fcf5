/** zod, told not to compile validators with eval: the content security policy forbids it. Schemas import it from here. */
import { z } from "zod";

z.config({ jitless: true });

export { z };
