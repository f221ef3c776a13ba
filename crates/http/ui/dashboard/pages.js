// The pages of the operations dashboard, by the name in their URL.

import { ConfigPage } from './config/page.js';
import { DeliveriesPage } from './deliveries/page.js';
import { DocsPage } from './docs/page.js';
import { JobsPage } from './jobs/page.js';
import { OverviewPage } from './overview/page.js';

export const pages = { overview: OverviewPage, jobs: JobsPage, deliveries: DeliveriesPage, config: ConfigPage, docs: DocsPage };
