// Pages with the figures of a study.

import { mountAll } from "./charts.js";

mountAll(document);
